"""From options to a plan: names resolved, defaults filled in, weights and prompts identified."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from peagle_bench import provenance, secrets
from peagle_bench.core.method import METHODS, method_named
from peagle_bench.core.plan import (
    HARNESS_SCHEMA,
    Cell,
    Plan,
    RunConfig,
    ServerGroup,
    digest_of,
    server_groups,
)
from peagle_bench.core.profile import HeadSpec, Profile
from peagle_bench.core.suite import Sampling, Suite
from peagle_bench.errors import ConfigError, TargetUnavailable, VllmNotFound, first_error
from peagle_bench.profiles import choose, profile_named
from peagle_bench.resources import data_root
from peagle_bench.selection import Selection, select
from peagle_bench.suites.catalog import canonical, find_suite
from peagle_bench.targets import embedded, vllm
from peagle_bench.targets.tokenizer import TargetTokenizer
from peagle_bench.yamlfile import read_mapping

if TYPE_CHECKING:
    from peagle_bench.scoring.sandbox import Sandbox

Say = Callable[[str], None]
MOST = 100_000
"""Largest K or C that is taken for meant."""
# A cell's id takes a head's digest, not where it lies.
_ANY_HEAD = HeadSpec(model="head")
# What the command line calls an option, beside RunConfig's own names.
_OPTION_NAMES = {
    "suite": "suites",
    "category": "categories",
    "server_flag": "server_flags",
    "request_timeout": "request_timeout_s",
    "idle_timeout": "idle_timeout_s",
    "ready_timeout": "ready_timeout_s",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with everything that carrying it out needs."""

    plan: Plan
    profile: Profile
    why_profile: str
    selections: Mapping[str, Selection]
    """By suite name: the prompts that are asked."""
    tokenizer: TargetTokenizer
    sandbox: Sandbox | None
    """Where replies' programs run; None: nothing is scored."""
    install: vllm.VllmInstall | None
    """None for a container command, the calibration server, or (in a dry run) no vLLM."""
    heads: Mapping[str, HeadSpec]
    """By method; a head on this machine by its absolute path."""
    weights: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def calibrated(self) -> bool:
        return self.profile.target.kind == "calibration"

    @property
    def probes(self) -> bool:
        """The servers are asked to time their steps."""
        return self.plan.config.probe and not self.calibrated

    @property
    def private(self) -> bool:
        """Some of the prompts are nobody else's business, and the run keeps no text."""
        return not self.plan.config.keep_text and any(
            not chosen.suite.public for chosen in self.selections.values()
        )

    @property
    def estimate(self) -> str | None:
        """Why every number is an estimate; None for a real server."""
        return "from the calibration server, not from a model" if self.calibrated else None


def read_config(path: Path) -> dict[str, Any]:
    """A --config file as options. Raises ConfigError naming the key that is wrong."""
    options = {}
    for key, value in read_mapping(path).items():
        name = str(key).replace("-", "_")
        options[_OPTION_NAMES.get(name, name)] = value
    unknown = options.keys() - RunConfig.model_fields.keys()
    if unknown:
        raise ConfigError(
            f"{path} has unknown options {', '.join(sorted(unknown))}. Known: "
            f"{', '.join(RunConfig.model_fields)}"
        )
    return options


def server_flags(words: Any) -> dict[str, Any]:
    """`name=value`, `name` or `no-name` as a server's flags; a mapping is taken as it is.

    Raises ConfigError for anything else.
    """
    if isinstance(words, Mapping):
        return dict(words)
    if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
        raise ConfigError(f"server flags are name=value words or a mapping, not {words!r}")
    flags: dict[str, bool | str] = {}
    for word in words:
        name, equals, value = word.strip().removeprefix("--").partition("=")
        if not name or "\0" in word:
            raise ConfigError(f"{word!r} is no server flag: write name=value, name or no-name")
        if equals:
            flags[name] = value
        else:
            flags[name.removeprefix("no-")] = not name.startswith("no-")
    return flags


def resolve(options: Mapping[str, Any]) -> tuple[RunConfig, Profile, str]:
    """Every option with a value, the profile, and why that profile.

    options: by RunConfig field; absent or None takes the profile's default. Raises UnknownName
    or ConfigError.
    """
    given = {k: v for k, v in options.items() if v is not None}
    name = str(given.get("profile", "auto"))
    if name == "auto":
        profile, why = choose(provenance.gpus())
    else:
        profile, why = profile_named(name), "named with --profile"
    defaults = profile.defaults
    filled: dict[str, Any] = {
        "suites": ("humaneval",),
        "methods": defaults.methods,
        "depths": defaults.depths,
        "concurrency": defaults.concurrency,
        "limit": defaults.limit,
        "max_tokens": defaults.max_tokens,
        "warmup": defaults.warmup,
    }
    filled |= given
    filled["profile"] = name if name.endswith((".yaml", ".yml")) else profile.name
    filled["methods"] = _unique([method_named(m).name for m in _words("methods", filled)])
    filled["suites"] = _unique([canonical(s) for s in _words("suites", filled)])
    if filled.get("categories"):
        filled["categories"] = _unique(_words("categories", filled))
    if "server_flags" in filled:
        filled["server_flags"] = server_flags(filled["server_flags"])
    for field in ("depths", "concurrency"):
        values = _whole_numbers(field, filled)
        if any(v < 1 for v in values):
            raise ConfigError(f"--{field} must be at least 1, not {min(values)}")
        filled[field] = tuple(sorted(values))
    if filled["limit"] == 0:
        filled["limit"] = None  # all prompts, over a profile's default
    try:
        config = RunConfig.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(first_error(error)) from error
    if any(METHODS[m].speculates for m in config.methods) and not config.depths:
        raise ConfigError("--depths is empty: a method that speculates needs at least one K")
    if config.unsafe_scoring and not config.score:
        raise ConfigError("--unsafe-scoring has no meaning without --score")
    _refuse_secrets(config, profile)
    if config.server_command is not None:
        try:
            words = shlex.split(config.server_command)
        except ValueError as error:
            raise ConfigError(f"--server-command cannot be split: {error}") from error
        if not words:
            raise ConfigError("--server-command is empty")
    return config, profile, why


def _refuse_secrets(config: RunConfig, profile: Profile) -> None:
    """Raises ConfigError where a secret would be written to the run folder."""
    places = {
        "--server-command": secrets.secret_in_command(config.server_command or ""),
        "--server-flag": secrets.secret_in_names(config.server_flags),
        "the profile's flags": secrets.secret_in_names(profile.flags),
        "the profile's env": secrets.secret_in_names(profile.env),
    }
    for place, what in places.items():
        if what is not None:
            raise ConfigError(
                f"{place} holds what looks like a secret ({what}), and it would be written to the "
                "run folder: export it before the run instead (servers inherit the environment; a "
                "container takes it with `-e HF_TOKEN`, without a value)"
            )


def _words(field: str, filled: Mapping[str, Any]) -> list[str]:
    """A list of names, or one name; raises ConfigError."""
    value = filled[field]
    if isinstance(value, str):
        value = [value] if value.startswith("hub:") else value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{field}: a list of names is wanted, not {value!r}")
    words = [v.strip() for v in value if v.strip()]
    if not words:
        raise ConfigError(f"{field}: the list is empty")
    return words


def _whole_numbers(field: str, filled: Mapping[str, Any]) -> tuple[int, ...]:
    """A list of whole numbers, or one; raises ConfigError."""
    value = filled[field]
    values = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise ConfigError(f"{field}: a list of whole numbers is wanted, not {value!r}")
    if any(v > MOST for v in values):
        raise ConfigError(f"--{field} above {MOST} makes no sense (got {max(values)})")
    return _unique(values)


def prepare(config: RunConfig, profile: Profile, why: str, *, dry: bool = False) -> Prepared:
    """Load prompts, find vLLM and heads, and lay out the cells. Starts and converts nothing.

    dry: a missing vLLM becomes a note instead of VllmNotFound.
    """
    tokenizer = TargetTokenizer(profile, config.target_path)
    selections: dict[str, Selection] = {}
    notes: list[str] = []
    for reference in config.suites:
        suite = find_suite(reference)
        if suite.name in selections:
            raise ConfigError(f"two suites are called {suite.name}: rename one file")
        chosen = selections[suite.name] = select(suite, config, profile, tokenizer)
        notes += chosen.notes
        if len(chosen.prompts) < max(config.concurrency):
            raise ConfigError(
                f"C={max(config.concurrency)} can never be in flight with {len(chosen.prompts)} "
                f"prompts of {suite.name}: raise --limit (0 takes all) or lower --concurrency"
            )
        if chosen.multi_turn and config.replay_turns:
            notes.append(
                f"{suite.name}: conversations are spoken once, by the first cell, and replayed to "
                "every other, so that all see the same prompts (--no-replay-turns)"
            )
    if provenance.machine()["busy"]:
        notes.append("this machine is busy with something else: times will be longer and noisier")
    sandbox = _sandbox(config, selections, notes)
    install = None
    calibrated = profile.target.kind == "calibration"
    if not calibrated and config.server_command is None:
        try:
            install = vllm.find_vllm(config.vllm_python or sys.executable)
        except VllmNotFound as error:
            if not dry:
                raise
            notes.append(str(error))
    heads: dict[str, HeadSpec] = {}
    weights: dict[str, Any] = {"target": _target_identity(profile, config)}
    for name in config.methods:
        method = METHODS[name]
        if install is not None and not vllm.at_least(install.version, method.since):
            raise ConfigError(
                f"{method.title} needs vLLM {method.since} or newer, {install.python} has "
                f"{install.version}"
            )
        if not method.needs_head:
            continue
        spec = profile.heads.get(name)
        if spec is None:
            raise ConfigError(
                f"profile {profile.name} has no head for {method.title}; it has "
                f"{', '.join(profile.heads) or 'none'}"
            )
        if calibrated:
            heads[name] = spec
            continue
        heads[name], weights[name] = _head(spec)
    for name, head in heads.items():
        depth = head.trained_depth
        above = [k for k in config.depths if depth is not None and k > depth]
        if above:
            notes.append(
                f"{METHODS[name].title}: K={', '.join(map(str, above))} is above the {depth} its "
                "head was trained with"
            )
    version = install.version if install else None
    openmp = vllm.intel_openmp(install.python) if install else None
    plan = _layout(config, profile, selections, weights, version, openmp)
    return Prepared(
        plan, profile, why, selections, tokenizer, sandbox, install, heads, weights, tuple(notes)
    )


def _sandbox(
    config: RunConfig, selections: Mapping[str, Selection], notes: list[str]
) -> Sandbox | None:
    """Where programs will run, tried out. Raises SandboxUnavailable where none isolates."""
    if not config.score:
        return None
    unscored = [name for name, chosen in selections.items() if chosen.suite.scorer is None]
    if len(unscored) == len(selections):
        raise ConfigError(f"--score: there is no scorer for {', '.join(unscored)}")
    if unscored:
        notes.append(f"there is no scorer for {', '.join(unscored)}: not scored")
    from peagle_bench.scoring import humaneval
    from peagle_bench.scoring.sandbox import Limits, find

    found = find(config.unsafe_scoring)
    scaled = find(config.unsafe_scoring, Limits().scaled(humaneval.time_factor(found)))
    notes.append(f"programs in replies run in a sandbox of kind {scaled.kind}")
    return scaled


def _target_identity(profile: Profile, config: RunConfig) -> Any:
    target = profile.target
    if target.kind == "embedded":
        return embedded.WEIGHTS_SHA256
    return [config.target_path or target.model, target.revision]


def _head(spec: HeadSpec) -> tuple[HeadSpec, Any]:
    """The head where it lies, and its identity. Raises TargetUnavailable for a missing folder."""
    for root in (Path.cwd(), data_root()):
        folder = root / spec.model
        if (folder / "config.json").is_file():
            depth = spec.trained_depth or vllm.head_depth(folder)
            here = {"model": str(folder.resolve()), "trained_depth": depth}
            return spec.model_copy(update=here), provenance.folder_digest(folder)
    if spec.model.startswith(("/", ".", "models/")):
        raise TargetUnavailable(f"no head at {spec.model}: its config.json is missing")
    return spec, [spec.model, spec.revision]


def _layout(
    config: RunConfig,
    profile: Profile,
    selections: Mapping[str, Selection],
    weights: Mapping[str, Any],
    version: str | None,
    openmp: Path | None,
) -> Plan:
    # A cell's id says which OpenMP served it, not where that lies.
    env = vllm.group_env(profile, Path(openmp.name) if openmp else None)
    groups = server_groups(config)
    cells = []
    for group in groups:
        for name, chosen in selections.items():
            for concurrency in config.concurrency:
                max_tokens = config.max_tokens or chosen.suite.max_tokens
                identity = {
                    "schema": HARNESS_SCHEMA,
                    "profile": profile.model_dump(mode="json", exclude={"estimates", "defaults"}),
                    "group": group.model_dump(mode="json"),
                    "weights": [weights["target"], weights.get(group.method)],
                    "vllm": version,
                    "command": config.server_command,
                    "flags": vllm.group_flags(profile, group, config, version, _ANY_HEAD),
                    "env": env,
                    "prompts": chosen.digest,
                    "replay": config.replay_turns if chosen.multi_turn else None,
                    "sampling": sampling_of(chosen.suite, config).model_dump(mode="json"),
                    "max_tokens": max_tokens,
                    "concurrency": concurrency,
                    "warmup": config.warmup,
                    "probe": config.probe,
                    "score": config.score and chosen.suite.scorer is not None,
                }
                cells.append(
                    Cell(
                        cell_id=digest_of(identity),
                        group=group,
                        suite=name,
                        concurrency=concurrency,
                        num_prompts=len(chosen.prompts),
                        num_requests=chosen.num_requests,
                        max_tokens=max_tokens,
                    )
                )
    return Plan(config=config, groups=groups, cells=tuple(cells))


def sampling_of(suite: Suite, config: RunConfig) -> Sampling:
    """The suite's sampling with what the run overrides; always sent in full."""
    update: dict[str, Any] = {"seed": config.seed}
    if config.temperature is not None:
        update["temperature"] = config.temperature
    return suite.sampling.model_copy(update=update)


def estimated_s(plan: Plan, profile: Profile, cell: Cell) -> float:
    """Seconds that a cell is reckoned to take, without its server's start.

    One request at the profile's speed, C of them sharing the machine at C^0.7 of it; a dry run's
    guess, corrected by what is measured as the run goes on.
    """
    tokens = cell.num_requests * cell.max_tokens
    return float(tokens / (profile.estimates.request_tok_per_s * cell.concurrency**0.7))


def estimated_group_s(plan: Plan, profile: Profile, group: ServerGroup) -> float:
    """A server's start and its cells."""
    cells = sum(estimated_s(plan, profile, c) for c in plan.cells_of(group))
    return profile.estimates.start_s + cells


def estimated_run_s(plan: Plan, profile: Profile) -> float:
    """The whole run, every server start included."""
    return sum(estimated_group_s(plan, profile, g) for g in plan.groups)


def _unique(values: Any) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))
