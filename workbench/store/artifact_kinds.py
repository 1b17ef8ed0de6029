"""The kinds of artifacts, as their rows name them; an expert's kind is that of its method (`artifact_kind`)."""

ANSWERS = "answers"  # of an expert to few-shot tasks
BASE = "demix-base"  # what experts of any method share; named when there was one method
CLUSTERING = "clustering"
CLUSTERING_PART = "clusters-part"
DISTANCES = "distances"  # of scored text to the centres of a clustering
DOCUMENTS = "documents"  # the domains of a corpus
PIECES = "pieces"  # of documents that are cut for clustering
REPORT = "report"
ROUTER_SUMS = "router-sums"  # of an expert's text, for routers in closed form
SCORES = "scores"
SEED = "seed"
TOKENS = "tokens"
