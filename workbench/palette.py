"""The colours of charts, on pages and in reports."""

# Each the farthest (in CIE Lab, plain and as a pale tint, on a light and a dark page) from those before it.
COLOURS = ("#0072B2", "#E69F00", "#C2185B", "#4DAF4A", "#6A3DE8", "#8B5A2B", "#00A0A0", "#CC79A7")
