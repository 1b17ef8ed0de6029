"""The time of a MoDE training step on several devices, and when experts should have their own meshes (§4.4).

*SPMD* is one mesh of all devices: every layer is cut over all of them (tensor parallelism), and the layers come one
after another, the backbone's and the experts'. *MPMD* gives the backbone one mesh and experts others: layers are cut
over fewer devices, and the meshes compute at the same time and meet at the merges.

Counted are products of matrices, at a rate; two all-reduces of the hidden states in each layer and pass, round a ring;
at each merge a block's input to every other mesh and its experts' answers, and their gradients the other way; Adam's
updates. Lines between meshes are independent of each other. Not counted are norms, the merge itself, and that a device
computes less well on a smaller piece: where that matters, measure the rate on such pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from engine.methods.mode.config import ModeConfig
from engine.models.flops import Shape

_NUMBER_BYTES = 4  # hidden states are float32


@dataclass(frozen=True)
class Machine:
    """Measured rates of a device and of the connections between devices."""

    flops_per_second: float
    bytes_per_second: float = float("inf")
    message_seconds: float = 0.0  # until the first byte is there
    updates_per_second: float = float("inf")  # parameters that Adam updates

    def message(self, num_bytes: float) -> float:
        """Seconds of one message."""
        return self.message_seconds + num_bytes / self.bytes_per_second

    def all_reduce(self, num_bytes: float, num_devices: int) -> float:
        """Seconds of a sum over devices in a ring, in 2·(n − 1) messages of a share each."""
        return 2 * (num_devices - 1) * self.message(num_bytes / num_devices)


@dataclass(frozen=True)
class Mesh:
    """Devices that compute together, and what is on them: the backbone, and experts by their index in the work."""

    size: int
    experts: Sequence[int] = ()
    has_backbone: bool = False
    speed: float = 1.0  # of its devices, in the machine's rate


@dataclass(frozen=True)
class Work:
    """A training step of so many sequences; all experts learn. Experts have the same number of blocks."""

    shape: Shape
    experts: Sequence[ModeConfig]
    rows: int
    length: int

    @property
    def num_blocks(self) -> int:
        return self.experts[0].num_blocks

    @property
    def state_bytes(self) -> int:
        """A block's input, or one expert's answer."""
        return self.rows * self.length * self.shape.width * _NUMBER_BYTES

    @property
    def layer_parameters(self) -> int:
        """The number of parameters of a layer's linear maps."""
        return (self.shape.projections + self.shape.ffn) // 2

    def flops(self, mesh: Mesh, block: int, *, backward: bool) -> int:
        """Operations of a mesh in a block. Frozen layers only pass gradients, and none in the first block."""
        maps, scores = self.shape.projections + self.shape.ffn, self.shape.scores(self.length)
        frozen, learning = self._backbone_layers(mesh, block), self._expert_layers(mesh)
        if backward:
            per_token = (frozen if block else 0) * (maps + 2 * scores) + learning * (2 * maps + 2 * scores)
        else:
            per_token = (frozen + learning) * (maps + scores)
        return per_token * self.rows * self.length

    def num_layers(self, mesh: Mesh, block: int, *, backward: bool) -> int:
        """Layers that a mesh goes through in a block."""
        frozen = 0 if backward and not block else self._backbone_layers(mesh, block)
        return frozen + self._expert_layers(mesh)

    def num_learning(self, mesh: Mesh) -> int:
        """Parameters that are updated on a mesh."""
        return self.num_blocks * self._expert_layers(mesh) * self.layer_parameters

    def _backbone_layers(self, mesh: Mesh, block: int) -> int:
        small, more = divmod(self.shape.num_layers, self.num_blocks)
        return small + (block < more) if mesh.has_backbone else 0

    def _expert_layers(self, mesh: Mesh) -> int:
        return sum(self.experts[number].expert_layers for number in mesh.experts)


@dataclass(frozen=True)
class Cost:
    """A step's seconds, the devices' utilisation, and how long merges waited for what.

    `waits` are the seconds in which blocks waited for the backbone, for experts, and for messages to and from them.
    """

    seconds: float
    utilisation: float
    waits: Mapping[str, float]

    @property
    def bound(self) -> str:
        """What the merges wait for longest."""
        return max(self.waits, key=lambda what: self.waits[what])


def step_cost(work: Work, meshes: Sequence[Mesh], machine: Machine) -> Cost:
    """The cost of a step; the first mesh has the backbone and the ends."""
    first, *others = meshes
    rate = machine.flops_per_second
    waits = {"backbone": 0.0, "experts": 0.0, "messages": 0.0}
    computed = 0.0  # device-seconds
    for block, backward in product(range(work.num_blocks), (False, True)):
        computed += sum(work.flops(mesh, block, backward=backward) / (rate * mesh.speed) for mesh in meshes)
        own = _mesh_seconds(work, first, machine, block, backward)
        slowest = (0.0, 0.0)  # seconds of a mesh and of its messages
        for mesh in others:
            took = _mesh_seconds(work, mesh, machine, block, backward)
            slowest = max(slowest, (took, _line_seconds(work, mesh, machine, block, backward)), key=sum)
        if own >= sum(slowest):
            waits["backbone"] += own
        else:
            waits["experts"] += slowest[0]
            waits["messages"] += slowest[1]
    ends = 2 * work.shape.ends * work.rows * work.length / (rate * first.speed)
    updates = max(work.num_learning(mesh) / mesh.size for mesh in meshes) / machine.updates_per_second
    seconds = sum(waits.values()) + ends / first.size + updates
    return Cost(seconds, (computed + ends) / (seconds * sum(mesh.size for mesh in meshes)), waits)


def _mesh_seconds(work: Work, mesh: Mesh, machine: Machine, block: int, backward: bool) -> float:
    """The seconds of a mesh for its part of a block, communication among its devices included."""
    computing = work.flops(mesh, block, backward=backward) / (machine.flops_per_second * mesh.speed * mesh.size)
    sums = 2 * work.num_layers(mesh, block, backward=backward)
    return computing + sums * machine.all_reduce(work.state_bytes, mesh.size)


def _line_seconds(work: Work, mesh: Mesh, machine: Machine, block: int, backward: bool) -> float:
    """A block's input and the answers; backward their gradients, but none of the first block's input."""
    answers = machine.message(len(mesh.experts) * work.state_bytes)
    return answers if backward and not block else answers + machine.message(work.state_bytes)


def spmd(work: Work, num_devices: int) -> list[Mesh]:
    """Everything on one mesh."""
    return [Mesh(num_devices, tuple(range(len(work.experts))), has_backbone=True)]


def mpmd(backbone_devices: int, *meshes: tuple[int, Sequence[int]]) -> list[Mesh]:
    """A mesh for the backbone, and others: each its devices and its experts."""
    return [Mesh(backbone_devices, has_backbone=True), *(Mesh(size, experts) for size, experts in meshes)]


@dataclass(frozen=True)
class Verdict:
    """The costs of a step on the same devices as SPMD and as MPMD."""

    spmd: Cost
    mpmd: Cost

    @property
    def saving(self) -> float:
        """The share of SPMD's time that MPMD saves (paper: up to 0.38); below 0 it loses."""
        return 1 - self.mpmd.seconds / self.spmd.seconds


def compare(work: Work, meshes: Sequence[Mesh], machine: Machine) -> Verdict:
    """Compares MPMD on these meshes with SPMD on as many devices."""
    single_mesh = spmd(work, sum(mesh.size for mesh in meshes))
    return Verdict(step_cost(work, single_mesh, machine), step_cost(work, meshes, machine))


def figure_4a(shape: Shape, machine: Machine, rows: int, length: int) -> dict[int, Cost]:
    """Figure 4a, by number of meshes: four experts of 6 layers in two blocks, on 8 devices."""
    work = Work(shape, [ModeConfig(2, 3)] * 4, rows, length)
    layouts = {
        1: spmd(work, 8),
        3: mpmd(4, (2, (0, 1)), (2, (2, 3))),
        5: mpmd(4, *((1, (number,)) for number in range(4))),
    }
    return {num_meshes: step_cost(work, meshes, machine) for num_meshes, meshes in layouts.items()}


def figure_4b(
    shape: Shape, machine: Machine, rows: int, length: int, layers: Sequence[int] = (1, 2, 3, 4, 5, 6)
) -> dict[int, Verdict]:
    """Figure 4b, by number of layers added: two experts in two blocks, each on a device, the backbone on 6."""
    meshes = mpmd(6, (1, (0,)), (1, (1,)))
    works = {4 * size: Work(shape, [ModeConfig(2, size)] * 2, rows, length) for size in layers}
    return {added: compare(work, meshes, machine) for added, work in works.items()}


def figure_4c(
    shape: Shape, machine: Machine, rows: int, length: int, merges: Sequence[int] = (1, 2, 3, 6)
) -> dict[int, Verdict]:
    """Figure 4c, by number of merges, a divisor of 6: four experts of 6 layers, a device each, the backbone on 4."""
    meshes = mpmd(4, *((1, (number,)) for number in range(4)))
    works = {blocks: Work(shape, [ModeConfig(blocks, 6 // blocks)] * 4, rows, length) for blocks in merges}
    return {blocks: compare(work, meshes, machine) for blocks, work in works.items()}
