"""The papers that can be replicated: the plan of each as jobs, and the page of its report."""
