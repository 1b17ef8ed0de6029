"""The comparative sentences of the MoDE paper (Schafhalter et al., 2024)."""

from __future__ import annotations

from workbench_studies.core.sentences import Sentence

_DEVICES = "Needs several devices; python benchmarks/mode_mpmd.py --figures prints what a model of their cost says."
_RANKS = "Our ranks stand in for the paper's, whose model is far wider: which rank is best is not the same question."
_BEST = (
    "Table 1: MoDE with 2 trained experts is above full fine-tuning on average",
    "Table 1: MoDE with 2 trained experts is above LoRA * on average",
)
_RETAINED = "Table 1: MoDE with 2 trained experts is above full fine-tuning in retention*"
_RETAINED_LORA = "Table 1: MoDE with 2 trained experts is above LoRA * in retention*"
_COMPARABLE = ("§4.2: MoDE with 2 trained experts is comparable to*",)
_LAYERS = ("Table 3: MoDE of * layers is above MoDE of * layers on*",)
_MORE_TEXT = ("Figure 3: on all sequences MoDE is above*", "Figure 3: from * sequences to all of them MoDE gains more*")
_MORE_PARAMETERS = ("Figure 3: MoDE of * layers is above MoDE of*", "Figure 3: the best number of layers*")

SENTENCES = (
    Sentence(
        "mode-scale",
        "Abstract",
        "consists of several transformer layers which scale better with more training examples and larger parameter "
        "counts",
        (*_MORE_TEXT, *_MORE_PARAMETERS),
    ),
    Sentence(
        "mode-comparable",
        "Abstract",
        "MoDE achieves comparable target performances to full parameter fine-tuning",
        _COMPARABLE,
    ),
    Sentence("mode-retention", "Abstract", "achieving 1.65% better retention performance", (_RETAINED,)),
    Sentence(
        "mode-speed",
        "Abstract",
        "improves training speeds by up to 38% over state-of-the-art distributed training configurations",
        why=_DEVICES,
    ),
    Sentence(
        "mode-outperforms",
        "§1",
        "it outperforms LoRA by 1.4% and full parameter fine-tuning by 0.6% on a multi-domain task",
        (*_BEST, "§3.2, §4.1: MoDE with 2 trained experts is above*", "§4.1: MoDE with 1 fresh expert is above*"),
    ),
    Sentence(
        "mode-scalability",
        "§1",
        "better scalability compared to LoRA as the number of training examples and parameters increases",
        (*_MORE_TEXT, *_MORE_PARAMETERS),
    ),
    Sentence(
        "mode-speedup",
        "§1",
        "achieving up to 38% speedup over standard distributed training configurations",
        why=_DEVICES,
    ),
    Sentence(
        "mode-backprop",
        "§3.2",
        "Freezing the backbone not only reduces the computational cost of backpropagation but also helps mitigate "
        "catastrophic forgetting",
        (_RETAINED, "Table 1: MoDE with 1 fresh expert is above full fine-tuning in retention*"),
    ),
    Sentence(
        "mode-layers-cost",
        "§3.1",
        "increasing the number of expert layers improves performance on the target domain",
        _LAYERS,
    ),
    Sentence(
        "mode-fewer-examples",
        "§3.2",
        "freezing the experts requires fewer training examples during composition",
        ("Figure 5: MoDE with 2 frozen experts on * is above MoDE with 2 trained experts*",),
    ),
    Sentence(
        "mode-unfreezing",
        "§3.2",
        "unfreezing the experts during this step further enhances multi-domain adaptation performance",
        ("Table 1: MoDE with 2 trained experts is above MoDE with 2 frozen experts on average",),
    ),
    Sentence(
        "mode-best-overall",
        "Table 1, §4.2",
        "MoDE provides the best overall performance and capability retention",
        (
            *_BEST,
            _RETAINED,
            _RETAINED_LORA,
            "Table 1: MoDE with 2 trained experts is above MoDE with * on average",
            "Table 1: MoDE with 2 trained experts is above MoDE with * in retention*",
        ),
    ),
    Sentence(
        "mode-lower-than-lora",
        "§4.1",
        "prioritize computational efficiency and exhibit lower accuracy than LoRA",
        why="No arm is CoDA or QLoRA.",
    ),
    Sentence(
        "mode-on-average", "§4.2", "MoDE outperforms full-parameter fine-tuning by 0.59% and LoRA by 1.41%", _BEST
    ),
    Sentence(
        "mode-math-code",
        "§4.2",
        "outperforming it by 0.28% on Math while trailing by 0.06% on Code",
        (
            *_COMPARABLE,
            "Table 1: MoDE with 2 trained experts is above full fine-tuning on the first target*",
        ),
    ),
    Sentence(
        "mode-improvement", "§4.2", "provides a 1.55% improvement in retention on the English dataset", (_RETAINED,)
    ),
    Sentence(
        "mode-than-lora",
        "§4.2",
        "Compared to LoRA, MoDE delivers a higher accuracy on the target domains",
        ("Table 1: MoDE with 2 trained experts is above LoRA * on the * target*",),
    ),
    Sentence(
        "mode-lora-retention",
        "§4.2",
        "surpasses LoRA by 0.45% in English retention",
        (_RETAINED_LORA,),
    ),
    Sentence(
        "mode-total-layers",
        "§4.2",
        "increasing the total number of expert layers leads to higher accuracy in the target domain",
        _LAYERS,
    ),
    Sentence(
        "mode-all-improve",
        "§4.2",
        "more experts, initialization, and multi-domain fine-tuning all improve performance",
        (
            "Table 1: MoDE with 2 fresh experts is above MoDE with 1 fresh expert on average",
            "Table 1: MoDE with 2 trained experts is above MoDE with 2 * experts on average",
        ),
    ),
    Sentence(
        "mode-sample-efficiency",
        "§4.2, Appendix C",
        "freezing the experts during composition yields better training sample efficiency compared to other methods",
        ("Figure 5: MoDE with 2 frozen experts on * is above*", "Figure 5: from * trained experts gain more*"),
    ),
    Sentence(
        "mode-scales-better",
        "Figure 3",
        "MoDE scales better than LoRA as the number of training examples and the number of parameters added increases",
        (*_MORE_TEXT, *_MORE_PARAMETERS),
    ),
    Sentence(
        "mode-trainable",
        "Figure 3",
        "MoDE provides higher accuracy than LoRA with more trainable parameters",
        ("Figure 3: the best number of layers*",),
    ),
    Sentence(
        "mode-small-datasets",
        "Figure 3, §4.3",
        "LoRA provides better accuracy on small datasets",
        ("Figure 3: on * sequences LoRA is above MoDE*",),
    ),
    Sentence(
        "mode-large-datasets",
        "Figure 3",
        "MoDE’s accuracy is better on large datasets",
        ("Figure 3: on all sequences MoDE is above*",),
    ),
    Sentence(
        "mode-struggles",
        "§4.3",
        "it struggles to convert additional parameters into higher accuracy",
        ("Table 2: LoRA of rank * is above LoRA of rank * on*", "Figure 3: the best number of layers*"),
    ),
    Sentence(
        "mode-continuous",
        "§4.3",
        "MoDE shows a continuous improvement in accuracy as more parameters are added",
        ("Figure 3: MoDE of * layers is above MoDE of*",),
    ),
    Sentence(
        "mode-plateaus",
        "§4.3",
        "its accuracy plateaus as the number of training examples exceeds one thousand",
        ("Figure 3: from * sequences to all of them MoDE gains more*",),
    ),
    Sentence(
        "mode-meshes",
        "Figure 4a",
        "The cost of resharding between meshes is lower than the cost of model parallelism with experts",
        why=_DEVICES,
        printed="204 of 329 ms a step",
    ),
    Sentence(
        "mode-number-of-meshes",
        "§4.4",
        "the latency of the 3 mesh and 5 mesh configurations is similar",
        why=_DEVICES,
    ),
    Sentence(
        "mode-spmd",
        "§4.4, Figure 4b",
        "SPMD performs better than MPMD when the expert size is small or large",
        why=_DEVICES,
    ),
    Sentence(
        "mode-latency",
        "Figure 4b",
        "MPMD enables faster training when the latency from the expert layers is close to the latency from the "
        "backbone",
        why=_DEVICES,
    ),
    Sentence(
        "mode-merges",
        "Figure 4c",
        "the speed of MPMD training decreases due to increased communication costs",
        why=_DEVICES,
    ),
    Sentence(
        "mode-competitive",
        "§5",
        "achieving 1.5% better retention of general capabilities and 0.6% higher accuracy across all subdomains",
        (_BEST[0], _RETAINED),
    ),
    Sentence(
        "mode-rank-32", "Appendix A", "a rank of 32 provides the best performance on the Code dataset", why=_RANKS
    ),
    Sentence("mode-rank-16", "Appendix A", "a LoRA rank of 16 provides the best balance", why=_RANKS),
    Sentence(
        "mode-ffn",
        "Appendix A, Table 2",
        "applying LoRA to the FFN slightly improves accuracy on Code by 0.27% at the cost of a 0.86% decrease",
        ("Table 2: LoRA of rank * in FFNs, too, is above*", "Table 2: LoRA of rank * retains more than * in FFNs, too"),
    ),
    Sentence(
        "mode-embeddings",
        "Table 2",
        "apply LoRA to the feed-forward networks (FFN) and the token embeddings in addition to the attention matrices",
        (
            "Table 2: LoRA of rank * is above LoRA of rank * in embeddings, too, on*",
            "Table 2: LoRA of rank * in FFNs and embeddings, too, is above*",
            "Table 2: LoRA of rank * retains more than * in embeddings, too",
            "Table 2: LoRA of rank * retains more than * in FFNs and embeddings, too",
        ),
    ),
    Sentence(
        "mode-blocks",
        "Appendix B",
        "the number of blocks impacts both domain-specific and retention performance",
        _LAYERS,
    ),
    Sentence(
        "mode-performance-grows",
        "Appendix B, Table 3",
        "performance on Code increases with the number of expert transformer layers",
        _LAYERS,
    ),
    Sentence(
        "mode-no-retention-cost",
        "Appendix B",
        "does not seem to significantly impact English retention",
        ("Table 3: MoDE of * layers retains as much as*",),
    ),
    Sentence(
        "mode-frozen-best",
        "Appendix C",
        "Frozen MoDE delivers the best performance when less mixture data is available",
        ("Figure 5: MoDE with 2 frozen experts on * is above*",),
    ),
    Sentence(
        "mode-highest",
        "Appendix C",
        "with more training data, the standard MoDE configuration achieves the highest accuracy across all domains",
        ("Figure 5: on all mixed text MoDE with 2 trained experts is above*",),
    ),
)
