"""The comparative sentences of the DEMix paper (Gururangan et al., 2021)."""

from __future__ import annotations

from workbench_studies.core.sentences import Sentence
from workbench_studies.demix.interleaving import DISTINCT, WORSE
from workbench_studies.demix.orders import LAMBDA

_SIZES = "Needs models of several sizes; a replication has one."
_TEXT = "Needs the paper's own domains, which are not published."
_GPUS = "Needs several GPUs that wait for each other."
_TRAINING = (
    "Table 3: DEMix (naive) has less perplexity than Dense on*",
    "Table 3: DEMix (cached) has less*than Dense on*",
)
_NOVEL = ("Table 5: DEMix (cached) has less perplexity than Dense on*",)
_OWN = ("Figure 2: on each training domain its own expert*",)
_OVERLAP = ("Figure 2: an expert's affinity*",)
_BALANCED = ("Table ?: Dense (balanced) has less perplexity than Dense on*",)
_CLOSE = ("Figure 6: DEMix-DAPT comes close to dense-DAPT*",)
_STABLE = ("Figures 7, 8: the posterior of a domain is stable*",)

SENTENCES = (
    Sentence("demix-perplexity", "Abstract", "DEMix layers reduce test-time perplexity", _TRAINING),
    Sentence("demix-efficiency", "Abstract", "increase training efficiency", why=_GPUS),
    Sentence(
        "demix-generalize",
        "Abstract",
        "allows the model to better generalize to heterogeneous or unseen domains",
        (*_NOVEL, "Table 5: DEMix (cached) has less perplexity than DEMix (naive)*"),
    ),
    Sentence(
        "demix-iteratively",
        "Abstract",
        "experts can be added to iteratively incorporate new domains without forgetting older ones",
        ("Table 6: an expert for each novel domain*", "Table 6: and does not raise it*"),
    ),
    Sentence(
        "demix-both",
        "§1",
        "improving performance in both training domains and novel test-time domains",
        (*_TRAINING, *_NOVEL),
    ),
    Sentence(
        "demix-consistent",
        "§1",
        "DEMix layers consistently improve in-domain performance",
        (*_TRAINING, "§4.4: DEMix (naive) has less perplexity than Dense on most*"),
    ),
    Sentence(
        "demix-single-hurts",
        "§1",
        "naively selecting a single domain expert at test time can hurt generalization",
        ("Table 5: Dense has less perplexity than DEMix (naive)*",),
    ),
    Sentence(
        "demix-mixing",
        "§1",
        "Mixing experts improves DEMix performance not only on novel test-time domains",
        (
            "Table 5: DEMix (cached) has less perplexity than DEMix (naive)*",
            "Table 3: DEMix (cached) has less perplexity than DEMix (naive)*",
        ),
    ),
    Sentence(
        "demix-no-cost", "§1", "introducing modularity into an LM need not come at a cost to generalization", _NOVEL
    ),
    Sentence(
        "demix-interleaving",
        "§3.3",
        "interleaving led to worse in-domain performance with DEMix layers",
        (f"{WORSE.where}: {WORSE.sentence}",),
    ),
    Sentence(
        "demix-distinct",
        "§3.3, note 6",
        "interleaving expert layers causes large performance hits in the most distinct domains",
        (f"{DISTINCT.where}: {DISTINCT.sentence}",),
    ),
    Sentence(
        "demix-throughput",
        "§3.4, Table 2",
        "DEMix layers achieve the same or slightly higher throughput",
        why=_GPUS,
        printed="55 against 51 TFLOPs/GPU at 1.3B",
    ),
    Sentence("demix-balancing", "§4.3", "domain balancing is consistently helpful for Dense training", _BALANCED),
    Sentence(
        "demix-imbalance",
        "§4.3",
        "balancing is especially important in cases in which there is an imbalance of domain prevalence",
        why="A replication has one corpus: no arm varies how unequal its domains are.",
    ),
    Sentence(
        "demix-balancing-most",
        "§4.3, note 9",
        "Balancing improves performance on most domains",
        ("§4.3: Dense (balanced) has less perplexity than Dense on most*",),
    ),
    Sentence(
        "demix-balancing-reddit",
        "§4.3, note 9",
        "but hurts performance relative to a Dense baseline on the Reddit domain",
        why=_TEXT,
    ),
    Sentence(
        "demix-smallest",
        "§4.3",
        "the benefits of additional domain information (i.e, domain tokens or DEMix layers) are clearest for the "
        "smallest model",
        why=_SIZES,
    ),
    Sentence(
        "demix-smaller-benefits", "§4.3", "for larger models, the benefits are smaller but consistent", why=_SIZES
    ),
    Sentence(
        "demix-specialize",
        "§4.3",
        "domain-specific information enables the model to better specialize to different domains",
        (*_TRAINING, "Table 3: +Domain-token has less perplexity than Dense (balanced)*"),
    ),
    Sentence(
        "demix-catching-up",
        "§4.3, Table 3",
        "the Dense baseline becomes increasingly better at fitting the training domains",
        why=_SIZES,
        printed="at 1.3B Dense ties DEMix (naive): 13.8 and 13.8",
    ),
    Sentence(
        "demix-most-benefit",
        "§4.4",
        "most training domains benefit from DEMix layers in a naive setting",
        ("§4.4: DEMix (naive) has less perplexity than Dense on most*",),
    ),
    Sentence(
        "demix-worse",
        "§4.4, Table 4",
        "WebText, RealNews, and Reddit fare worse than the Dense baseline",
        why=_TEXT,
        printed="14.6 > 13.8, 13.3 > 12.5, 30.6 > 28.4",
    ),
    Sentence(
        "demix-advantageous",
        "§4.4",
        "Dense training may be advantageous for domains that have a higher degree of overlap",
        ("Table 4: DEMix (naive) loses against Dense where*",),
    ),
    Sentence("demix-diagonal", "Figure 2", "each expert has the best performance on its assigned domain", _OWN),
    Sentence(
        "demix-highest-affinity", "§4.4", "domain experts have the highest affinity to their assigned domain", _OWN
    ),
    Sentence("demix-transfer", "Figure 2", "WebText and RealNews experts transfer much better", why=_TEXT),
    Sentence(
        "demix-heterogeneous",
        "§4.4",
        "some experts, e.g., WebText, RealNews, and Reddit, have relatively high affinities to many domains",
        why=_TEXT,
    ),
    Sentence(
        "demix-overlap",
        "§4.4",
        "an expert’s affinity to a domain correlates positively with bigram overlap",
        _OVERLAP,
    ),
    Sentence("demix-aligned", "§4.4", "similar domains have more closely aligned domain experts", _OVERLAP),
    Sentence("demix-rigid", "§4.4", "a discrete notion of domain, while usually helpful on average", _TRAINING),
    Sentence(
        "demix-lambda",
        "§5.1",
        "found that 0.3 worked well for most settings",
        (f"{LAMBDA.where}: {LAMBDA.sentence}",),
    ),
    Sentence(
        "demix-correct-label",
        "§5.2, Figure 4",
        "the correct label has the highest posterior",
        ("Figure 4: on each training domain its own expert*",),
    ),
    Sentence(
        "demix-variation",
        "§5.2",
        "More variation in the estimates is expected and observed for the new domains",
        ("§5.2: the posterior is spread over more experts*",),
    ),
    Sentence(
        "demix-all-baselines",
        "Table 5",
        "Mixing domain experts with a prior estimated using a small amount of data in the target domain outperforms "
        "all other baselines",
        ("Table 5: DEMix (cached) has less perplexity than*",),
    ),
    Sentence(
        "demix-ensembling",
        "§5.4",
        "Ensembling DEMix experts outperforms Dense baselines and using experts individually",
        (
            "Table 5: DEMix (uniform) has less perplexity than Dense on*",
            "Table 5: DEMix (updating) has less perplexity than Dense on*",
            "Table 5: DEMix (cached) has less perplexity than Dense*",
            "Table 5: DEMix (cached) has less perplexity than DEMix (naive)*",
            "Table 5: DEMix (average) has less perplexity than DEMix (naive)*",
        ),
    ),
    Sentence(
        "demix-caching",
        "§5.4",
        "caching a prior prior to evaluation results in the best average performance",
        ("Table 5: DEMix (cached) has less perplexity than DEMix (updating)*",),
    ),
    Sentence(
        "demix-competitive",
        "§5.4",
        "+Domain-Token is competitive with naively using DEMix layers in-domain",
        ("Table 3: DEMix (naive) has less perplexity than +Domain-token*",),
    ),
    Sentence(
        "demix-token-underperforms",
        "§5.4",
        "it consistently underperforms DEMix with a weighted mixture on the novel domains",
        ("Table 5: DEMix (*) has less perplexity than +Domain-token*",),
    ),
    Sentence(
        "demix-smaller-match",
        "§5.4",
        "allows smaller models to match or outperform much larger Dense models",
        why=_SIZES,
        printed="21.4 at 125M, 21.4 at 350M",
    ),
    Sentence(
        "demix-weighted",
        "§5.4",
        "weighted ensembling outperforms simple averaging",
        ("Table 5: DEMix (*) has less perplexity than DEMix (average)*",),
    ),
    Sentence(
        "demix-closely-match",
        "§5.4",
        "DEMix LMs with a cached prior either outperform Dense baselines or closely match them",
        ("§5.4: on each novel domain DEMix (cached)*",),
    ),
    Sentence(
        "demix-tweets",
        "§5.4",
        "The largest improvement against Dense baselines comes from the Tweets domain",
        why=_TEXT,
        printed="67 % better",
    ),
    Sentence("demix-no-large-cost", "§5.4", "need not come at a large cost to generalization to new domains", _NOVEL),
    Sentence(
        "demix-beneficial",
        "§5.4, Table 3",
        "We find that doing so is beneficial",
        ("Table 3: DEMix (cached) has less perplexity than DEMix (naive)*",),
    ),
    Sentence(
        "demix-across-all",
        "§5.4",
        "We see improvements in performance across all domains for every scale",
        ("§5.4: on each training domain DEMix (cached)*",),
    ),
    Sentence(
        "demix-largest-heterogeneous",
        "§5.4",
        "the largest improvements seem to come from hetereogeneous domains",
        why="The paper has no measure of how heterogeneous a domain is, and its own domains are not published.",
        printed="Reddit 10.7 %, WebText 2.4 %, RealNews 1.9 %",
    ),
    Sentence(
        "demix-avoids",
        "Figure 6",
        "DEMix-DAPT avoids that degradation",
        ("Figure 6: DEMix-DAPT does not raise it on the training domains*",),
    ),
    Sentence("demix-close", "Figure 6", "achieving close (in the case of Gutenberg) or better", _CLOSE),
    Sentence(
        "demix-degrades",
        "Figure 6",
        "average perplexity on all pretraining domains degrades",
        ("Table 13, Figure 6: dense-DAPT raises*",),
    ),
    Sentence(
        "demix-dense-reduces",
        "§6.2",
        "Dense-DAPT reduces perplexity on the novel domain",
        ("Table 13, Figure 6: dense-DAPT lowers*",),
    ),
    Sentence(
        "demix-dapt-reduces",
        "§6.2",
        "DEMix-DAPT reduces perplexity on the novel domain without forgetting",
        ("§6.2: DEMix-DAPT lowers the perplexity on its target", "Figure 6: DEMix-DAPT does not raise it*"),
    ),
    Sentence(
        "demix-outperforms-some",
        "§6.2",
        "DEMix-DAPT outperforms Dense-DAPT for some domains (e.g., CORD-19 and ACL Papers), while it closely "
        "approaches Dense-DAPT for others",
        _CLOSE,
    ),
    Sentence(
        "demix-aligns",
        "§6.2",
        "DEMix-DAPT is especially helpful when the target domain strongly aligns with one of the experts",
        why="Needs many targets; a folder has a handful, and the paper names two.",
    ),
    Sentence(
        "demix-adding-all",
        "Table 6",
        "Adding experts reduces perplexity on all domains, even those previously seen",
        ("Table 6: an expert for each novel domain*", "Table 6: and lowers it on the training domains"),
    ),
    Sentence(
        "demix-seen",
        "§6.2",
        "Adding the eight additional experts in fact reduces perplexity on previously seen domains",
        ("Table 6: and lowers it on the training domains",),
    ),
    Sentence(
        "demix-named-reductions",
        "§6.2",
        "we see an 2.4% reduction on Med, 1.8% reduction on RealNews, and 2% reduction on Reddit",
        why=_TEXT,
    ),
    Sentence(
        "demix-removal",
        "Table 7",
        "removing a domain expert (–Expert) results in perplexity degradation on the corresponding domain",
        ("Table 7: without its expert*",),
    ),
    Sentence(
        "demix-approaching",
        "§7.2",
        "in most cases approaching the performance of a model that has not been exposed to data from that domain",
        ("Table 7: a model that never saw it*",),
    ),
    Sentence(
        "demix-underperforms",
        "§7.2, Table 7",
        "In some cases (e.g., WebText and RealNews), –Expert even underperforms –Domain",
        why=_TEXT,
        printed="27.3 > 25.4, 26.7 > 25.0",
    ),
    Sentence(
        "demix-noisier",
        "§A.6",
        "The calculate domain posteriors are noisier for earlier blocks, stabilizing usually after around 50 blocks",
        _STABLE,
    ),
    Sentence(
        "demix-decreases-more",
        "Table 13",
        "average perplexity in the novel domains decreases more for Dense-DAPT",
        ("Table 13: after dense-DAPT the targets have less*",),
    ),
    Sentence(
        "demix-deterioration",
        "Table 13",
        "this comes at the cost of a significant deterioration in performance in training domains",
        ("Table 13, Figure 6: dense-DAPT raises*",),
    ),
)
