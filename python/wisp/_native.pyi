"""The C++ side of wisp. Use the package `wisp`; names here may change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import os
import pathlib


version: str = ...

def kernel_name() -> str:
    """The vector kernel in use, e.g. "AVX2"."""

class Weights:
    """Tensors by name, readable in place."""

    def __len__(self) -> int: ...

    @property
    def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]]:
        """[(name, dtype, shape), …] in ascending order of name."""

    @property
    def schema_digest(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

class HostWeights(Weights):
    """Arrays that Python owns, seen without copying."""

    def __init__(self, tensors: Iterable[tuple[str, str, tuple[int, ...], object]], writable: bool = ...) -> None: ...

    @property
    def writable(self) -> bool: ...

class DiffReport:
    """What a delta holds."""

    @property
    def step(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def changed_tensors(self) -> int: ...

    @property
    def checkpoint_bytes(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def base(self) -> str: ...

    @property
    def result(self) -> str: ...

class ApplyReport:
    """What apply() did and proved."""

    @property
    def deltas_applied(self) -> int: ...

    @property
    def deltas_skipped(self) -> int:
        """The base was already past them."""

    @property
    def changed_elements(self) -> int: ...

    @property
    def base_proven(self) -> bool: ...

    @property
    def result_proven(self) -> bool: ...

    @property
    def result(self) -> str: ...

class TensorReport:
    """One tensor of a file."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self, /) -> tuple[int, ...]: ...

    @property
    def element_count(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def stored_bytes(self) -> int: ...

    @property
    def block_kinds(self) -> dict[str, int]:
        """How many blocks are stored in which way."""

class FileReport:
    """What a delta or a checkpoint file holds."""

    @property
    def kind(self) -> str:
        """"delta" or "checkpoint"."""

    @property
    def codec(self) -> str:
        """Of a delta; else empty."""

    @property
    def foreign(self) -> bool:
        """A delta without wisp's digests and seal."""

    @property
    def file_bytes(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

    @property
    def step(self) -> int | None: ...

    @property
    def metadata(self) -> dict[str, str]: ...

    @property
    def tensors(self) -> list[TensorReport]: ...

    @property
    def base(self) -> str | None: ...

    @property
    def result(self) -> str | None: ...

    @property
    def schema_digest(self) -> str: ...

class VerifyReport:
    """What verify() proved."""

    @property
    def file(self) -> FileReport: ...

    @property
    def decoded(self) -> bool: ...

    @property
    def base_matches(self) -> bool: ...

    @property
    def result_matches(self) -> bool: ...

    @property
    def state(self) -> str | None: ...

class Checkpoint(Weights):
    """A checkpoint on disk, mapped."""

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Checkpoint: ...

    @property
    def metadata(self) -> dict[str, str]: ...

def diff(old: Weights, new: Weights, delta: str | os.PathLike[str], codec: str = ..., step: int | None = ..., threads: int = ...) -> DiffReport: ...

def merge(base: Checkpoint, deltas: Sequence[str | os.PathLike[str]], merged: str | os.PathLike[str], codec: str = ..., step: int | None = ..., threads: int = ...) -> DiffReport: ...

def apply(base: str | os.PathLike[str], deltas: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str] | None = ..., quick: bool = ..., threads: int = ...) -> ApplyReport: ...

def apply_in_memory(weights: HostWeights, deltas: Sequence[str | os.PathLike[str]], threads: int = ...) -> ApplyReport: ...

def inspect(file: str | os.PathLike[str]) -> FileReport: ...

def verify(file: str | os.PathLike[str], base: str | os.PathLike[str] | None = ..., threads: int = ...) -> VerifyReport: ...

def digest_of(weights: Weights, threads: int = ...) -> str:
    """The state digest, 32 hexadecimal digits."""

class Location:
    """A run, or any prefix, inside a store."""

    @property
    def url(self) -> str: ...

    @property
    def prefix(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def creates_exclusively(self) -> bool: ...

    @property
    def way(self) -> str:
        """How the store is reached, where there are several ways to it."""

    @property
    def poll(self) -> float:
        """Followers ask no more often than every so many seconds."""

def hub_access(url: str) -> tuple[str, str, str, str]:
    """
    (bucket, prefix, S3 gateway or "", what it takes to use that) of an hf:// address.
    """

def open_location(url: str) -> Location: ...

def locate(store: object, prefix: str = ...) -> Location:
    """A place in a store written in Python."""

class Trust:
    """Whom to believe, and which run."""

    def __init__(self, keys: Sequence[str] = ..., min_serial: int = ..., run_id: str = ...) -> None: ...

    @property
    def keys(self) -> list[str]: ...

    @property
    def min_serial(self) -> int: ...

    @property
    def run_id(self) -> str:
        """Empty: whichever run is at the address."""

class CommitSummary:
    """One commit of a run."""

    @property
    def seq(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def writer(self) -> str: ...

    @property
    def signer(self) -> str:
        """Empty: unsigned."""

    @property
    def time_ms(self) -> int: ...

    @property
    def delta_bytes(self) -> int: ...

    @property
    def anchor_bytes(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def rewind_from(self) -> int | None: ...

    @property
    def hash(self) -> str: ...

class ReplicaSummary:
    """A follower, as its heartbeat tells."""

    @property
    def id(self) -> str: ...

    @property
    def seq(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def lag_steps(self) -> int: ...

    @property
    def seen_ms(self) -> int:
        """Age of its last heartbeat."""

    @property
    def status(self) -> str:
        """One of "joining", "following", "failing", "stopped", "unknown"."""

class AnchorSummary:
    """A whole checkpoint in the bucket."""

    @property
    def seq(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def base_name(self) -> str: ...

class Concern:
    """What is not well about a run."""

    @property
    def severity(self) -> str: ...

    @property
    def cause(self) -> str:
        """Stable across releases, e.g. "replica_silent"."""

    @property
    def text(self) -> str: ...

class RunVerdict:
    """How a run is, in one line."""

    @property
    def severity(self) -> str:
        """One of "ok", "warning", "critical"."""

    @property
    def text(self) -> str: ...

    @property
    def concerns(self) -> list[Concern]:
        """The worst first."""

class ObjectTotals:
    """How many objects, and how large."""

    @property
    def objects(self) -> int: ...

    @property
    def bytes(self) -> int: ...

class RunStatus:
    """A run at a glance."""

    @property
    def run(self) -> str: ...

    @property
    def single_writer(self) -> bool: ...

    @property
    def codec(self) -> str: ...

    @property
    def is_signed(self) -> bool: ...

    @property
    def roots(self) -> list[str]:
        """Ids of the keys that vouch for it."""

    @property
    def head(self) -> CommitSummary | None:
        """None: nothing was published yet."""

    @property
    def head_age_ms(self) -> int: ...

    @property
    def expired(self) -> bool: ...

    @property
    def floor_seq(self) -> int: ...

    @property
    def anchors(self) -> list[AnchorSummary]: ...

    @property
    def merged_deltas(self) -> int: ...

    @property
    def stored(self) -> ObjectTotals | None:
        """None: the objects were not counted."""

    @property
    def join(self) -> ObjectTotals | None:
        """
        What a late joiner would read now. None: no anchor leads to the newest step.
        """

    @property
    def replicas(self) -> list[ReplicaSummary]: ...

    @property
    def branches(self) -> list[str]: ...

    @property
    def verdict(self) -> RunVerdict: ...

class InitReport:
    """A run that was started."""

    @property
    def run(self) -> str: ...

    @property
    def codec(self) -> str: ...

    @property
    def is_signed(self) -> bool: ...

    @property
    def already_there(self) -> bool: ...

    @property
    def branch_step(self) -> int | None: ...

    @property
    def shared_bytes(self) -> int: ...

def init_run(where: Location, single_writer: bool = ..., branch_of: Location | None = ..., branch_step: int | None = ..., trust: Trust = ..., sign_key: str | os.PathLike[str] | None = ..., certificate: str | os.PathLike[str] | None = ..., roots: Trust = ..., codec: str | None = ..., slices: int | None = ...) -> InitReport: ...

def read_slices(where: Location, weight_bytes: int, trust: Trust = ...) -> int:
    """
    How many slices the deltas of a run are cut into, for weights of this size.
    """

def read_codec(where: Location, trust: Trust = ...) -> str: ...

def tell_replica(where: Location, id: str, seq: int, status: str, pause_us: int | None = ..., every_ms: int | None = ..., trust: Trust = ...) -> None:
    """Writes the heartbeat of a replica that another process holds."""

def read_log(where: Location, count: int, trust: Trust = ...) -> list[CommitSummary]: ...

def read_status(where: Location, count_objects: bool = ..., trust: Trust = ...) -> RunStatus: ...

LOG2_BLOCK_ELEMENTS: int = ...

class DeliveredShard:
    """What one rank's part of a step came to."""

    @property
    def bytes(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

class ShardWriter:
    """One rank's blocks, coded and uploaded."""

    @property
    def base(self) -> str | None: ...

    def adopt(self, folder: str | os.PathLike[str], state: str) -> None:
        """Takes this rank's blocks out of a checkpoint folder."""

    def begin(self, call: str) -> None: ...

    def add(self, spans: Sequence[object]) -> None:
        """The bytes of the next spans."""

    def finish(self) -> None: ...

    def deliver(self, call: str) -> bytes: ...

    def advance(self, state: str) -> None: ...

    @property
    def delivered(self) -> DeliveredShard:
        """What the last delivery of a step came to."""

    def drop(self) -> None: ...

def open_shard_writer(where: Location, schema: Sequence[tuple[str, str, Sequence[int]]], rank: int, spans: Sequence[tuple[int, int, int]], scratch: str | os.PathLike[str] | None = ..., threads: int = ..., log2: int = ..., inline_bytes: int = ..., part_bytes: int = ...) -> ShardWriter: ...

class ShardCommitter:
    """Rank 0: calls the ranks, and commits."""

    def call(self, step: int, whole: bool = ...) -> str: ...

    def commit(self, call: str, manifests: list[bytes]) -> PublishReport: ...

    @property
    def landing(self) -> str | None: ...

    def anchor_call(self) -> str | None: ...

    def commit_anchor(self, call: str, manifests: list[bytes]) -> PublishReport: ...

    def heartbeat(self) -> None: ...

    @property
    def next_step(self) -> int: ...

    @property
    def has_state(self) -> bool: ...

    @property
    def run(self) -> str: ...

def open_shard_committer(where: Location, schema: Sequence[tuple[str, str, Sequence[int]]], anchor_every: int = ..., trust: Trust = ..., sign_key: str | os.PathLike[str] | None = ..., certificate: str | os.PathLike[str] | None = ..., metadata: Mapping[str, str] = ..., side_files: Sequence[str | os.PathLike[str]] = ..., scratch: str | os.PathLike[str] | None = ..., expires_after: float | None = ...) -> ShardCommitter: ...

def pull_head(where: Location, folder: str | os.PathLike[str], trust: Trust = ..., threads: int = ...) -> str | None:
    """
    The newest state into a folder; its digest, or None when there is none yet.
    """

def call_base(call: str) -> str | None:
    """The state that a call stands on; None when it asks for whole weights."""

class CompactReport:
    """What compact() merged."""

    @property
    def merged(self) -> int: ...

    @property
    def merged_bytes(self) -> int: ...

    @property
    def spans_states(self) -> int: ...

    @property
    def join_bytes_before(self) -> int: ...

    @property
    def join_bytes_after(self) -> int: ...

    @property
    def join_objects_before(self) -> int: ...

    @property
    def join_objects_after(self) -> int: ...

class RetainReport:
    """What retain() removed."""

    @property
    def floor_seq(self) -> int: ...

    @property
    def floor_step(self) -> int: ...

    @property
    def floor_moved(self) -> bool: ...

    @property
    def waiting_objects(self) -> int: ...

    @property
    def waiting_bytes(self) -> int: ...

    @property
    def removed_objects(self) -> int: ...

    @property
    def removed_bytes(self) -> int: ...

    @property
    def buried_commits(self) -> int: ...

    @property
    def held_by_branches(self) -> list[str]: ...

    @property
    def removed_keys(self) -> list[str]: ...

class ScrubFinding:
    """Something that is not as it should be."""

    @property
    def what(self) -> str: ...

    @property
    def problem(self) -> str: ...

    @property
    def cure(self) -> str: ...

class ScrubReport:
    """What scrub() proved, and what it could not."""

    @property
    def commits(self) -> int: ...

    @property
    def objects(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def states_proven(self) -> int: ...

    @property
    def findings(self) -> list[ScrubFinding]: ...

class ExportReport:
    """The step that export() wrote."""

    @property
    def seq(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def fetched_bytes(self) -> int: ...

    @property
    def fetched_objects(self) -> int: ...

class Finding:
    """One promise of a store, tried out."""

    @property
    def name(self) -> str: ...

    @property
    def verdict(self) -> str: ...

    @property
    def detail(self) -> str: ...

    @property
    def cure(self) -> str: ...

class DoctorReport:
    """Which promises a store keeps."""

    @property
    def findings(self) -> list[Finding]: ...

    @property
    def exclusive_create(self) -> bool: ...

    @property
    def undecided(self) -> bool: ...

    @property
    def healthy(self) -> bool: ...

def examine(where: Location, quick: bool = ...) -> DoctorReport: ...

def compact_run(where: Location, trust: Trust = ..., sign_key: str | os.PathLike[str] | None = ..., certificate: str | os.PathLike[str] | None = ..., work: str | os.PathLike[str] | None = ..., base: str | os.PathLike[str] | None = ..., threads: int = ...) -> CompactReport: ...

def retain_run(where: Location, keep_anchors: int, grace: float, orphan_age: float, dry_run: bool, trust: Trust = ..., sign_key: str | os.PathLike[str] | None = ..., certificate: str | os.PathLike[str] | None = ..., work: str | os.PathLike[str] | None = ..., base: str | os.PathLike[str] | None = ..., release_branches: Sequence[str] = ...) -> RetainReport: ...

def scrub_run(where: Location, replay: bool, trust: Trust = ..., work: str | os.PathLike[str] | None = ..., base: str | os.PathLike[str] | None = ..., threads: int = ...) -> ScrubReport: ...

def export_step(where: Location, output: str | os.PathLike[str], step: int | None = ..., trust: Trust = ..., work: str | os.PathLike[str] | None = ..., base: str | os.PathLike[str] | None = ..., threads: int = ...) -> ExportReport: ...

class DecodedChanges:
    """What deltas change; taken once."""

    @property
    def tensors(self) -> list[tuple[str, int]]: ...

    def take(self, room: Iterable[object]) -> None: ...

def decode_staged(schema: Sequence[object], tensors: Iterable[object], deltas: Sequence[str], base: str, result: str, whose: str) -> DecodedChanges:
    """
    Proves the deltas over tensors that are (memory, where in it the tensor begins, staged offsets, staged bits) each, in the order of the schema.
    """

class PieceMap:
    """Use wisp.engine.plan.load_plan.Piece."""

    def __init__(self, source: int, target: int, dims: Sequence[tuple[int, int, int]]) -> None: ...

def fill_words(jobs: Iterable[object]) -> None:
    """
    Of (piece, memory, width, numbers of words, buffer, staged offsets, staged bits) each: the words as they are in memory once what is staged is written to it.
    """

def stage_changes(targets: Iterable[object]) -> list[tuple[int, int, bool]]:
    """
    Each target is (width, elements, memory, base, groups, room): base and room are (offsets, new bits, old bits), a group is what one move changes, [(piece, places, new bits, old bits), …]. Fills the room with all changes, ascending; answers (how many, how many do not find what they should change, whether all said what that is).
    """

def scatter_elements(targets: Iterable[object]) -> None:
    """
    Writes the elements of (memory, width, offsets, bits) each; no offset twice.
    """

class ToldMove:
    """A proven move; valid while it is being told."""

    def tensors(self, names: Sequence[str] | None = None) -> list[tuple[str, str, tuple[int, ...], bytearray, bytearray, bytearray]]: ...

    def write(self, path: str, with_old: bool) -> list[tuple[str, int]]: ...

class HeldSlices:
    """What is held of tensors: name -> [(first, [(size, stride), …]), …]."""

    def __init__(self, tensors: Mapping[str, Sequence[tuple[int, Sequence[tuple[int, int]]]]]) -> None: ...

def runs_of_tiles(tensor: object, slices: int, parts: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """
    Elements [(first, past), …] of the tiles of which something is held; those that are not.
    """

def digest_of_indexed_words(tensor: object, indices: object, words: object) -> tuple[int, int]:
    """As digest_of_words, of words that lie apart."""

def digest_of_words(tensor: object, first_word: int, words: object) -> tuple[int, int]:
    """
    What words of a tensor (name, dtype, shape) add to the digest of a state.
    """

class FollowEvent:
    """One move of a follower."""

    @property
    def kind(self) -> str:
        """"applied", "joined", "waiting" or "fault"."""

    @property
    def seq(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def head_seq(self) -> int: ...

    @property
    def lag_steps(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def fetched_bytes(self) -> int: ...

    @property
    def fetched_objects(self) -> int: ...

    @property
    def deltas_applied(self) -> int: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def commit_age_ms(self) -> int: ...

    @property
    def expired(self) -> bool: ...

    @property
    def fetch_seconds(self) -> float: ...

    @property
    def verify_seconds(self) -> float: ...

    @property
    def apply_seconds(self) -> float: ...

    @property
    def unproven(self) -> bool:
        """Taken on the word of files that carry no digest, as TRL writes them."""

    @property
    def fault(self) -> str:
        """What went wrong and was worked around."""

    @property
    def fault_kind(self) -> str: ...

class FollowReport:
    """Where a follower stands."""

    @property
    def step(self) -> int: ...

    @property
    def seq(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def has_state(self) -> bool: ...

    @property
    def state(self) -> str: ...

    @property
    def moved(self) -> bool: ...

    @property
    def unproven(self) -> bool: ...

    @property
    def expired(self) -> bool: ...

    @property
    def head_seq(self) -> int: ...

    @property
    def lag_steps(self) -> int: ...

class TakenState:
    """A whole state, while it is being told."""

    @property
    def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]]: ...

    def tensor(self, index: int) -> bytearray:
        """A copy of the tensor's bytes."""

class FollowSession:
    """The C++ side of wisp.Follower."""

    def __init__(self, where: Location, on_event: object, trust: Trust, base: str | os.PathLike[str] | None, scratch: str | os.PathLike[str] | None, replica_id: str, poll: float, heartbeat: float, max_staleness: float, accept_rewind: bool, threads: int, parallel_fetches: int, trl_layout: bool = ...) -> None: ...

    def into_folder(self, folder: str | os.PathLike[str]) -> None: ...

    def into_steps(self, pattern: str, keep: int, mark: str) -> None:
        """A folder for each step: see wisp/followed_folders.hpp."""

    def into_host(self, host: HostWeights, strict: bool) -> None: ...

    def into_code(self, on_adopt: object, on_move: object) -> None: ...

    def into_shared(self, on_target: object, on_enter: object, on_adopt: object, on_move: object) -> None:
        """
        The replica is the memory that on_target(schema) answers with; on_enter() is called before it is written to.
        """

    def into_relay(self, on_room: object, on_ask: object, on_asked: object, on_adopt: object, on_move: object, on_held: object, on_held_of: object, on_hand_over: object) -> None:
        """
        There is no replica: on_room([(tensor, words), …]) answers with memory, and on_ask(state) fills it. on_held() says what is held of the tensors, None: all; on_held_of(schema) the same before a whole state is fetched. on_hand_over(files, step, seq, state) says whether these deltas are decoded elsewhere.
        """

    def catch_up(self) -> FollowReport: ...

    def follow(self) -> FollowReport | None: ...

    def arm(self) -> None: ...

    def halt(self) -> None: ...

    def abandon(self) -> None: ...

    def reclaim(self) -> None: ...

    def wake(self) -> None: ...

    def step_back(self) -> int: ...

    def prove(self) -> bool: ...

    def hold(self) -> int | None:
        """Keeps moves away; the step that the target holds meanwhile."""

    def release(self) -> None: ...

    def shut(self) -> None: ...

class PublishReport:
    """A step that was committed."""

    @property
    def seq(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def anchored(self) -> bool: ...

    @property
    def rewound(self) -> bool: ...

    @property
    def changed_elements(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

    @property
    def delta_bytes(self) -> int: ...

    @property
    def anchor_bytes(self) -> int: ...

    @property
    def uploaded_bytes(self) -> int: ...

    @property
    def reused_bytes(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def anchor_failure(self) -> str | None:
        """Why an anchor that was due is not there; the step is."""

    @property
    def diff_seconds(self) -> float: ...

    @property
    def upload_seconds(self) -> float: ...

    @property
    def commit_seconds(self) -> float: ...

    @property
    def baseline_seconds(self) -> float: ...

class Schema:
    """Names, dtypes and shapes, in ascending order of name."""

    def __init__(self, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> None: ...

    @property
    def tensors(self, /) -> list[tuple[str, str, tuple[int, ...]]]: ...

    @property
    def digest(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def total_elements(self) -> int: ...

BLOCK_ELEMENTS: int = ...

class PublishSession:
    """A publisher and its baseline in memory."""

    @property
    def run(self) -> str: ...

    @property
    def next_step(self) -> int:
        """When the publisher was opened."""

    @property
    def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]] | None:
        """
        Of the run's newest state when the publisher was opened; None: there is none.
        """

    def submit(self, schema: Schema, next: Callable[[], Sequence[tuple[int, int, object, bool]]], restart: Callable[[], None], step: int) -> bool:
        """Whether an earlier step that still waited was folded into this one."""

    def submit_changes(self, schema: Schema, next: Callable[[], tuple[int, int, object, object, object] | None], step: int) -> bool: ...

    def flush(self) -> None: ...

    def flush_within(self, seconds: float) -> None:
        """As flush(), but waits through failures until the time is over."""

    def miss(self, step: int, kind: str, text: str) -> None:
        """A step that could not even be submitted."""

    @property
    def uncommitted(self) -> int | None:
        """The last submitted step, if it is not committed."""

    def stop(self) -> None: ...

    def stop_within(self, seconds: float) -> bool:
        """
        Whether the upload under way has ended; if not, stop() would wait for it.
        """

    def news(self) -> list[PublishReport | Exception]:
        """Reports and exceptions since the last call."""

    def take_adopted(self) -> bool: ...

    def take_moves(self) -> list[tuple[int, int, bytes, bytes]]:
        """[(tensor, first element, positions, new bits), …] since the last call."""

    def read_baseline(self, tensor: int, into: object) -> None: ...

def keep_for_ever(object: object | None) -> None:
    """
    Never destroys an object: in a forked child its threads are gone and its locks may be held, and at exit an upload may use it that nobody can end.
    """

def changes_by_tensor(where: Location, seq: int, trust: Trust = ...) -> list[tuple[str, int, int, int]]:
    """
    [(name, elements, changed elements, stored bytes), …] of a commit's delta.
    """

def open_publish_session(where: Location, anchor_every: int, trust: Trust, sign_key: str | os.PathLike[str] | None, certificate: str | os.PathLike[str] | None, metadata: Mapping[str, str], side_files: Sequence[str | os.PathLike[str]], scratch: str | os.PathLike[str] | None, expires_after: float | None, threads: int, keep_moves: bool) -> PublishSession: ...

class TrlPublishSession:
    """The C++ side of wisp.trl.LayoutPublisher."""

    def publish(self, weights: Weights, step: int | None) -> PublishReport: ...

def open_trl_publish_session(where: Location, codec: str, anchor_every: int, scratch: str | os.PathLike[str] | None, threads: int) -> TrlPublishSession: ...

class EngineReport:
    """What one server answered, or did not."""

    @property
    def url(self) -> str: ...

    @property
    def engine(self) -> str: ...

    @property
    def target(self) -> int | None: ...

    @property
    def served(self) -> int | None:
        """What it serves now, as far as it said."""

    @property
    def moved(self) -> bool:
        """To the target, by this attempt."""

    @property
    def initialized(self) -> bool:
        """It was new, or came back."""

    @property
    def pause_seconds(self) -> float: ...

    @property
    def seconds(self) -> float: ...

    @property
    def phases(self) -> dict[str, float]: ...

    @property
    def faults(self) -> list[str]: ...

    @property
    def ok(self) -> bool: ...

    @property
    def error(self) -> str:
        """Empty: none."""

    @property
    def error_kind(self) -> str: ...

class DriveSession:
    """Use wisp.engine.Driver."""

    def __init__(self, run: str, vllm: Sequence[str], sglang: Sequence[str], api_key: str, trust: Trust, mode: str, timeout: float, connect_timeout: float, answer_timeout: float, watch: float, on_report: object | None = ...) -> None: ...

    def update(self, step: int, state: str) -> list[EngineReport]: ...

    def aim(self, step: int, state: str) -> None: ...

    def look(self) -> list[EngineReport]: ...

    def latest(self) -> list[EngineReport]: ...

    def close(self) -> None: ...

class HeldFolder:
    """A folder of a follower that stays at its step."""

    def __init__(self, folder: str | os.PathLike[str], timeout: float) -> None: ...

    @property
    def folder(self) -> str: ...

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> str: ...

    def release(self) -> None: ...

class CheckpointPublisher:
    """The C++ side of wisp.folders.FolderPublisher."""

    def __init__(self, where: Location, baseline: str | os.PathLike[str] | None, trust: Trust, sign_key: str | os.PathLike[str] | None, certificate: str | os.PathLike[str] | None, anchor_every: int, threads: int) -> None: ...

    @property
    def step(self) -> int | None: ...

    def publish(self, checkpoint: str | os.PathLike[str], step: int) -> PublishReport: ...

class FolderWatch:
    """Checkpoint folders that become complete."""

    def __init__(self, where: str, ready: str, quiet: float) -> None: ...

    def look(self, past: int | None) -> tuple[list[tuple[int, pathlib.Path]], list[tuple[int, pathlib.Path]], bool]:
        """
        (complete, passed over, whether one is being written) after the step `past`; folders as (step, path).
        """

    def give_up(self, step: int, folder: str | os.PathLike[str]) -> None: ...
