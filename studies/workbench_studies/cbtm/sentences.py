"""The comparative sentences of the C-BTM paper (Gururangan et al., 2023)."""

from __future__ import annotations

from workbench_studies.core.sentences import Sentence

_SIZES = "Needs OPT-6.7B and its answers to the paper's tasks."
_TASKS = "Needs OPT and the paper's six tasks, each by itself; a replication judges the mean of the tasks it is given."
_BUDGET = "Needs budgets beyond that of a replication."
_LESS = ("Figure 5: * clusters have less perplexity than one, at equal tokens",)
_LEAD = ("Figure 5: the lead of * grows with the tokens",)
_BEST = ("Figure 6: the best number of clusters grows with the tokens",)
_TOO_MANY = ("Figure 6: * clusters are too many for the tokens*",)
_AS_ALL = ("Figure 9: the nearest * are as good as all*",)
_NEAREST = ("Figure 9: the nearest of * alone has less perplexity than Dense",)
_FEW_OF_MANY = ("Figure 10: the nearest * less perplexity than*",)
_ANSWERS = ("Table 1: cluster routing over * is right more often than Dense",)
_FROZEN = ("§2.2: *",)
_BALANCE = ("§7.2: with * clusters balancing has little effect*", "Figure 14: *")
_BALANCE_GROWS = ("§7.2: balancing gains more with*",)
_BOTH_SHAPES = ("Figure 7: of smaller experts, too*",)
_LARGER = ("Figure 11: *",)
_RANDOM = ("Figure 13: * random clusters have more perplexity than*",)
_UPCYCLED = ("Figure 12: at the whole budget a mixture of experts has more perplexity than*",)
_LABELS = ("Table 8: * clusters have less perplexity than metadata experts",)
_OWN = ("Figure 15: on each cluster its own expert*",)

SENTENCES = (
    Sentence(
        "cbtm-outperforms",
        "Abstract",
        "outperforms dense baselines on multiple corpora and few-shot tasks",
        (*_LESS, *_ANSWERS),
    ),
    Sentence(
        "cbtm-meaningful", "Abstract", "specializing experts to meaningful clusters is key to these gains", _RANDOM
    ),
    Sentence(
        "cbtm-improves",
        "Abstract",
        "Performance also improves with the number of experts and size of training data",
        (*_LEAD, *_BEST),
    ),
    Sentence(
        "cbtm-compute-matched", "Figure 1", "achieve lower validation perplexity than compute-matched dense LMs", _LESS
    ),
    Sentence(
        "cbtm-optimal",
        "Figure 1",
        "The optimal cluster count for C-BTM, and its performance gains, increase with the size of training data",
        (*_BEST, *_LEAD),
    ),
    Sentence("cbtm-always", "§1", "training more clusters always results in better validation perplexity", _LESS),
    Sentence("cbtm-overall-compute", "§1", "the optimal cluster count increases with the overall compute", _BEST),
    Sentence(
        "cbtm-both-sizes",
        "§1",
        "These results are consistent for both 1.3B and 6.7B parameter experts",
        _BOTH_SHAPES,
    ),
    Sentence(
        "cbtm-comparable", "§1", "using just the top-2 or top-4 experts is comparable to using all experts", _AS_ALL
    ),
    Sentence("cbtm-top-1", "§1", "using just the top-1 expert still outperforms the dense model", _NEAREST),
    Sentence(
        "cbtm-larger-dense",
        "§1",
        "Training with more clusters is also more effective than training larger dense models",
        _LARGER,
    ),
    Sentence(
        "cbtm-flops",
        "§1",
        "the same perplexity as a 6.7B dense model, but with only 29% as many training FLOPs",
        _LARGER,
    ),
    Sentence(
        "cbtm-sparsified",
        "§1",
        "outperform dense baselines even with heavily sparsified inference",
        (*_ANSWERS, *_NEAREST),
    ),
    Sentence("cbtm-gold", "§1", "it works as well as expert assignment with gold metadata", _LABELS),
    Sentence(
        "cbtm-strongly",
        "§1",
        "strongly outperforms random and unbalanced clustering baselines",
        (*_RANDOM, *_BALANCE),
    ),
    Sentence("cbtm-constraint", "§2.1", "ELMs trained without this constraint perform worse", _BALANCE),
    Sentence(
        "cbtm-tf-idf",
        "§2.1, note 3",
        "tf-idf outperformed other scalable text embeddings, like hash embeddings",
        why="No arm has another embedding.",
    ),
    Sentence(
        "cbtm-averaging",
        "§2.4",
        "not well suited to our setting",
        ("§2.4: the average of the parameters*",),
    ),
    Sentence(
        "cbtm-fixed",
        "§2.2",
        "can be fixed for the second half of a document with no drop in performance",
        _FROZEN,
    ),
    Sentence(
        "cbtm-rates",
        "§3.2",
        "expert models benefit from faster learning rates and larger batch sizes",
        why="No arm has another rate or batch.",
    ),
    Sentence("cbtm-temperature", "§3.2, Table 9", "setting T=0.1 works well for most settings", ("Table 9: *",)),
    Sentence(
        "cbtm-single-cluster",
        "Figure 5",
        "Training with more than one cluster always outperforms the compute-matched, single cluster dense model",
        _LESS,
    ),
    Sentence("cbtm-gap", "§4.1", "the gap between our models and the dense one widens", _LEAD),
    Sentence(
        "cbtm-optimum", "§4.1", "there exists an optimal cluster count for each token budget", (*_TOO_MANY, *_BEST)
    ),
    Sentence(
        "cbtm-past-optimum",
        "§4.1, Figure 6",
        "using too many clusters without sufficiently increasing compute can degrade performance",
        _TOO_MANY,
    ),
    Sentence(
        "cbtm-still-outperforms",
        "§4.1",
        "using more clusters than optimal for the highest token budget settings still outperforms the dense model",
        _LESS,
    ),
    Sentence(
        "cbtm-expert-size",
        "Figure 7",
        "the gaps between these models are smaller, due to the substantial increase in pretraining FLOPs",
        ("Figure 7: * gain less over one where the experts are larger",),
    ),
    Sentence(
        "cbtm-faster",
        "Figure 8",
        "Models trained with more clusters have faster updates as we increase the total compute",
        ("Figure 8: an update of the slowest of *",),
    ),
    Sentence(
        "cbtm-moe-slower",
        "Figure 8",
        "MoE models are much slower to train",
        ("Figure 8: an update of a mixture of experts *",),
    ),
    Sentence(
        "cbtm-substantially",
        "Figure 9",
        "Top-1 inference substantially outperforms the densely trained baseline at no additional inference cost",
        _NEAREST,
    ),
    Sentence("cbtm-top-2", "Figure 9", "top-2 and top-4 inference performs comparably", _AS_ALL),
    Sentence(
        "cbtm-then-sparsify",
        "Figure 10",
        "is usually better than training 1-, 2-, or 4-cluster models",
        _FEW_OF_MANY,
    ),
    Sentence(
        "cbtm-128-top-1",
        "§4.3",
        "using the top-1 expert for the 128 cluster model (using 0.7% of total parameters at inference time for each "
        "context) still outperforms the dense model",
        ("Figure 10: the nearest of * alone has less perplexity than Dense",),
    ),
    Sentence(
        "cbtm-128-top-4",
        "§4.3",
        "the top-4 expert model (3.1% of total parameters) performs comparably to using all experts",
        ("§4.3: the nearest * of * are as good as all*",),
    ),
    Sentence(
        "cbtm-larger-dense-lm",
        "Figure 11",
        "Training with C-BTM is substantially more efficient than training a larger dense LM",
        _LARGER,
    ),
    Sentence(
        "cbtm-at-least-8",
        "§4.5",
        "the top-1, top-2 and top-4 experts from models with at least 8 clusters significantly outperform 1-cluster, "
        "2-cluster and 4-cluster models",
        _FEW_OF_MANY,
    ),
    Sentence(
        "cbtm-downstream",
        "Table 1",
        "The 16-cluster model, with top-4 or top-16 inference, always outperforms the 1-cluster model",
        _ANSWERS,
    ),
    Sentence(
        "cbtm-downstream-top-1",
        "Table 1",
        "top-1 inference usually outperforms the 1-cluster model at no additional inference cost",
        why=_TASKS,
        printed="on average 65.4 against 66.2: the contrary",
    ),
    Sentence(
        "cbtm-below-opt", "§5.2", "The 1-cluster model achieves lower accuracy than OPT-1.3B on some tasks", why=_TASKS
    ),
    Sentence(
        "cbtm-above-opt",
        "§5.2",
        "the 16-cluster model outperforms OPT-1.3B on all tasks other than Twitter",
        why=_TASKS,
    ),
    Sentence(
        "cbtm-some-settings",
        "§5.2",
        "top-1 and top-4 inference matches or exceeds using all experts in some settings",
        why=_TASKS,
    ),
    Sentence(
        "cbtm-6.7b", "§5.2", "our 1-cluster 6.7B model outperforms OPT-6.7B on all tasks except Twitter", why=_SIZES
    ),
    Sentence("cbtm-both-6.7b", "§5.2", "Our 16-cluster model performs comparably to both 6.7B models", why=_SIZES),
    Sentence(
        "cbtm-routing-examples",
        "§5.2, §A.7",
        "results in even better downstream task performance with C-BTM models",
        ("Table 11: * performance routing * is right more often than cluster routing*",),
    ),
    Sentence(
        "cbtm-consistently",
        "§5.3",
        "C-BTM models consistently outperform dense 1-cluster baselines",
        _ANSWERS,
    ),
    Sentence(
        "cbtm-negligible",
        "§5.3",
        "top-k activation reduces inference costs with negligible effects on downstream task performance",
        why=_TASKS,
    ),
    Sentence(
        "cbtm-number-of-networks",
        "§6.2",
        "8 and 16 experts are similar to, but slightly worse than, 32 experts",
        why="The mixture of experts has one number of networks.",
    ),
    Sentence(
        "cbtm-exploding",
        "§6.2, Figure 12",
        "64 experts and 128 experts consistently have exploding losses",
        why=_BUDGET,
    ),
    Sentence(
        "cbtm-moe-small",
        "Figure 12",
        "the MoE outperforms C-BTM models with 16 experts at small budgets",
        ("Figure 12: at the smaller budget a mixture of experts has less*",),
    ),
    Sentence(
        "cbtm-moe-large", "Figure 12", "it fails at larger budgets, even under-performing the dense model", _UPCYCLED
    ),
    Sentence(
        "cbtm-moe-substantially",
        "§6.4",
        "language models trained with C-BTM substantially outperform MoEs trained to the same budget",
        _UPCYCLED[:1],
    ),
    Sentence(
        "cbtm-random",
        "§7.1",
        "using random clusters dramatically underperforms both our method and the dense baseline",
        _RANDOM,
    ),
    Sentence(
        "cbtm-random-grows",
        "Figure 13",
        "Random clusters become more harmful as the cluster count grows",
        ("Figure 13: random clusters do more harm*",),
    ),
    Sentence(
        "cbtm-balancing",
        "Figure 14",
        "balancing consistently improves over the unbalanced version",
        ("Figure 14: *", *_BALANCE_GROWS),
    ),
    Sentence(
        "cbtm-sizes",
        "§7.2, §A.4",
        "balanced clustering significantly increases the median cluster size, and narrows its range",
        ("Figure 18: *",),
    ),
    Sentence(
        "cbtm-little-effect", "§7.2", "For the 8-cluster model, we observe that balancing has little effect", _BALANCE
    ),
    Sentence(
        "cbtm-more-important",
        "§7.2",
        "balancing becomes more important as one scales the number of clusters",
        _BALANCE_GROWS,
    ),
    Sentence("cbtm-own-cluster", "§7.3, Figure 15", "all experts perform best on their own cluster", _OWN),
    Sentence(
        "cbtm-slightly-better",
        "§7.4, Table 8",
        "experts trained with learned clusters perform slightly better than those with metdata labels",
        _LABELS,
    ),
    Sentence(
        "cbtm-both-techniques",
        "§7.4",
        "Both techniques perform better than training with just a single cluster on the Pile",
        ("Table 8: metadata experts have less perplexity than one cluster", *_LESS),
    ),
    Sentence(
        "cbtm-validation-examples",
        "§A.7",
        "achieves the best performance overall, with optimal performance occurring at top-4 expert activation",
        ("Table 11: fixed performance routing with validation examples *",),
    ),
    Sentence(
        "cbtm-top-4-improves",
        "Table 11",
        "Fixed performance routing with top-4 inference always improves performance over using all experts",
        why=_TASKS,
    ),
)
