"""Streamlit building blocks of the pages and of the forms of the kinds of job."""
