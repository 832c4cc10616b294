"""The command line: parse, call one function, map the result to an exit code.

Exit codes: 0 done · 1 some cells failed or are INVALID · 2 usage · 3 nothing measured ·
4 a fault of our own · 130 interrupted.
Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peagle_bench import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from peagle_bench.planning import Prepared
    from peagle_bench.reporting import Reported
    from peagle_bench.store import RunFolder

EXITS = (
    "Exit codes: 0 done · 1 some cells failed or are INVALID · 2 usage error, nothing written · "
    "3 nothing measured, or this machine lacks something · 4 a fault of peagle-bench · "
    "130 interrupted (--resume goes on)."
)
app = typer.Typer(
    name="peagle-bench",
    help="How much faster does a model serve with P-EAGLE than with EAGLE-3, or without "
    "speculation: on your workload, at each draft depth K and concurrency C, and why.",
    epilog=EXITS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"peagle-bench {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=EXITS)
def run(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            "-s",
            help="Prompts to drive: a name (`suites list`), a file or folder of your own traffic, "
            "a suite's YAML, or hub:owner/name,split=…,prompt=COLUMN; may be given several times.  "
            "[default: humaneval]",
            metavar="NAME|PATH",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            "-m",
            metavar="NAMES",
            help="Comma-separated (`methods` lists them).  [default: the profile's]",
        ),
    ] = None,
    depths: Annotated[
        str | None,
        typer.Option(
            "--depths",
            "-k",
            metavar="N,N,…",
            help="Draft depths K (not for baseline).  [default: the profile's]",
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            "-c",
            metavar="N,N,…",
            help="Requests in flight.  [default: the profile's]",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            "-p",
            help="Target and heads: a name, a YAML file, or auto: the largest that fits the GPUs "
            "found, else the embedded one.  [default: auto]",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Prompts per suite, a sample drawn by --seed; 0: all.  [default: the profile's]",
            min=0,
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only prompts of this category; may be given several times.  [default: all]",
        ),
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only this tier of a speed-throughput suite: low_entropy, mixed or high_entropy.",
        ),
    ] = None,
    oversample: Annotated[
        bool | None,
        typer.Option(
            "--oversample", help="Repeat prompts where --limit is more than there are; stamped."
        ),
    ] = None,
    allow_partial: Annotated[
        bool | None,
        typer.Option(
            "--allow-partial",
            help="Measure what is there of a suite whose other prompts are placeholders; stamped.",
        ),
    ] = None,
    skip_long: Annotated[
        bool | None,
        typer.Option(
            "--skip-long",
            help="Leave out prompts that do not fit the served length with their output; stamped.",
        ),
    ] = None,
    probe: Annotated[
        bool | None,
        typer.Option(
            "--probe/--no-probe",
            help="Time drafting, forward and sampling inside the server.  [default: probe]",
        ),
    ] = None,
    replay_turns: Annotated[
        bool | None,
        typer.Option(
            "--replay-turns/--no-replay-turns",
            help="Conversations: let the first cell (the baseline's) speak them and replay its "
            "replies to every other, so that all see the same prompts.  [default: replay]",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Output tokens per request at most.  [default: the profile's, else the suite's]",
            min=1,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T", help="Sent with every request.  [default: the suite's]", min=0.0, max=100.0
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Of the prompt sample and of sampling.  [default: 0]"
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Measure everything N times on fresh servers.  [default: 1]", min=1
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Requests per cell that do not count.  [default: the profile's]",
            min=0,
        ),
    ] = None,
    score: Annotated[
        bool | None,
        typer.Option(
            "--score",
            help="Run the programs in replies in a sandbox: pass@1 of the outputs that were timed "
            "(HumanEval).",
        ),
    ] = None,
    unsafe_scoring: Annotated[
        bool | None,
        typer.Option(
            "--unsafe-scoring",
            help="Score even where no sandbox isolates: model output can then do anything you can.",
        ),
    ] = None,
    keep_text: Annotated[
        bool | None,
        typer.Option(
            "--keep-text",
            help="Keep the text of prompts and outputs in the run folder; without it: ids and "
            "digests.",
        ),
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Seconds to a response's first byte.  [default: 600]", min=0.001
        ),
    ] = None,
    idle_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Seconds without a byte in mid-response.  [default: 120]", min=0.001
        ),
    ] = None,
    ready_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Seconds for a server to become ready.  [default: 900]", min=0.001
        ),
    ] = None,
    vllm_python: Annotated[
        str | None,
        typer.Option(help="Interpreter that has vLLM.  [default: the one running this]"),
    ] = None,
    server_command: Annotated[
        str | None,
        typer.Option(
            help="Start servers with this instead, e.g. 'docker run --rm --gpus all --network "
            "host vllm/vllm-openai:v0.32.0'; the server's flags are appended."
        ),
    ] = None,
    server_flag: Annotated[
        list[str] | None,
        typer.Option(
            help="A server flag for every method, as name=value, name or no-name; may be given "
            "several times."
        ),
    ] = None,
    target_path: Annotated[
        str | None, typer.Option(help="Local copy of the target's weights.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML with any of these options; the command line wins."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder.  [default: results/<time>-…]")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Keep the whole cells of --out (or of the newest run of the same plan) and "
            "measure the others. With --out alone, the run's own options are taken.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan and how long it may take; start nothing."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before a run of over an hour (asked on a terminal only).",
        ),
    ] = False,
) -> None:
    """Start the servers one after another, drive the suites at them, and report.

    \b
    Examples:
      peagle-bench run
      peagle-bench run --suite humaneval --methods baseline,eagle3,peagle --depths 3,5,7
      peagle-bench run -m p-eagle,eagle-3 -k 7 -c 1,4,16 --limit 64 --repeats 3
      peagle-bench run --suite speed-code --suite mt-bench --limit 64
      peagle-bench run --suite capture/my-endpoint/AllTraffic --limit 200 --skip-long
      peagle-bench run --config nightly.yaml --out results/nightly --resume
      peagle-bench run --dry-run
    """
    given: dict[str, Any] = {
        "suites": tuple(suite) if suite else None,
        "methods": _names(methods),
        "depths": _ints("--depths", depths),
        "concurrency": _ints("--concurrency", concurrency),
        "profile": profile,
        "limit": limit,
        "categories": tuple(category) if category else None,
        "tier": tier,
        "oversample": oversample,
        "allow_partial": allow_partial,
        "skip_long": skip_long,
        "replay_turns": replay_turns,
        "probe": probe,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "repeats": repeats,
        "warmup": warmup,
        "score": score,
        "unsafe_scoring": unsafe_scoring,
        "keep_text": keep_text,
        "request_timeout_s": request_timeout,
        "idle_timeout_s": idle_timeout,
        "ready_timeout_s": ready_timeout,
        "vllm_python": vllm_python,
        "server_command": server_command,
        "server_flags": server_flag,
        "target_path": target_path,
    }
    _guard(lambda: _run(given, config, out, resume, dry_run, yes))


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
) -> None:
    """Make a run's table, report.md, cells.csv and charts again, from its stored records.

    Needs neither a GPU nor a server.

    \b
    Example:
      peagle-bench report results/20260313-101500-smollm2-135m-humaneval
    """

    def do() -> int:
        from peagle_bench.reporting import analyse
        from peagle_bench.store import RunFolder

        folder = RunFolder(run_folder)
        reported = analyse(folder)
        _show(_console(), folder, reported)
        if not reported.results:
            return 3
        return 0 if reported.sound else 1

    _guard(do)


@app.command(epilog=EXITS)
def calibrate(
    concurrency: Annotated[
        str, typer.Option("--concurrency", "-c", metavar="N,N,…", help="Requests in flight.")
    ] = "1,8,64",
    requests: Annotated[
        int, typer.Option(metavar="N", help="Requests a cell; at least C are made.", min=2)
    ] = 64,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="Output tokens of each.", min=2)
    ] = 64,
) -> None:
    """Measure a server with known truth, and print this harness's own error in each figure.

    Exits with 1 when an error is beyond its bound: OTPS 1 %, TTFT and TPOT 1 ms + 1 %, AL exact.
    Every number is an ESTIMATE of a calibration server, not of a model.

    \b
    Examples:
      peagle-bench calibrate
      peagle-bench calibrate --concurrency 64,256 --requests 256
    """

    levels = _ints("--concurrency", concurrency)
    if not levels:
        raise typer.BadParameter("the list is empty", param_hint="--concurrency")

    def do() -> int:
        from peagle_bench.calibrate import calibrate as measure
        from peagle_bench.output.calibration import print_errors

        console = _console()
        errors = measure(levels, requests, max_tokens, lambda text: console.print(text))
        print_errors(console, errors)
        return 0 if all(e.within for e in errors) else 1

    _guard(do)


@app.command()
def prepare(
    target_path: Annotated[
        str | None, typer.Option(help="Check this local copy of the target instead.")
    ] = None,
) -> None:
    """Make the embedded target ready: convert it once into the cache folder and check it.

    `run` does the same on first use. The cache is $PEAGLE_BENCH_CACHE, else ~/.cache/peagle-bench.
    """

    def do() -> int:
        from peagle_bench.targets.embedded import embedded_target

        typer.echo(f"ready: {embedded_target(typer.echo, target_path)}")
        return 0

    _guard(do)


@app.command()
def profiles() -> None:
    """List the profiles: targets, their heads, and what they need."""

    def do() -> int:
        from peagle_bench.profiles import profile_named, profile_names

        for name in profile_names():
            found = profile_named(name)
            need = f"{found.gpu_memory_gib:.0f} GiB of GPU" if found.gpu_memory_gib else "no GPU"
            defaults = found.defaults
            typer.echo(f"{name:<16} {found.title} · {need} · heads: {', '.join(found.heads)}")
            typer.echo(
                f"{'':<16} defaults: methods {', '.join(defaults.methods)} · K "
                f"{', '.join(map(str, defaults.depths))} · C "
                f"{', '.join(map(str, defaults.concurrency))} · "
                f"{defaults.limit or 'all'} prompts · warm-up {defaults.warmup}"
            )
        return 0

    _guard(do)


@app.command()
def methods() -> None:
    """List the methods: how drafts are made, and since which vLLM."""

    def do() -> int:
        from peagle_bench.core.method import METHODS

        for name, found in METHODS.items():
            head = "needs a head" if found.needs_head else "no head"
            since = f" · vLLM {found.since} or newer" if found.speculates else ""
            typer.echo(f"{name:<16} {found.title} · {head}{since}")
        return 0

    _guard(do)


suites_app = typer.Typer(
    help="Where prompts come from: list, show, prepare and check suites.", rich_markup_mode=None
)
app.add_typer(suites_app, name="suites", epilog=EXITS)

_OfProfile = Annotated[
    str,
    typer.Option(
        "--profile", "-p", help="Whose tokenizer and served length: a name, a YAML file, or auto."
    ),
]
_Partial = Annotated[
    bool, typer.Option("--allow-partial", help="Take what is there of an incomplete suite.")
]


@suites_app.callback(invoke_without_command=True)
def _suites(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _guard(_list_suites)


@suites_app.command("list")
def suites_list() -> None:
    """List the suites: what they are, whether they are on this machine, and their licence."""
    _guard(_list_suites)


def _list_suites() -> int:
    from peagle_bench.suite_commands import list_suites

    list_suites(_console())
    return 0


@suites_app.command("show")
def suites_show(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH", help="As for run --suite.")],
    profile: _OfProfile = "auto",
    allow_partial: _Partial = False,
) -> None:
    """Print a suite's size, digest, lengths in tokens, sampling and licence.

    \b
    Examples:
      peagle-bench suites show humaneval
      peagle-bench suites show speed-code --profile gpt-oss-20b
    """

    def do() -> int:
        from peagle_bench.suite_commands import show_suite

        return show_suite(_console(), name, profile, allow_partial)

    _guard(do)


@suites_app.command("prepare")
def suites_prepare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A suite of `suites list`.")],
    path: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Take a copy from this machine instead of the hub: a file, or the folder that "
            "NVIDIA's preparation script wrote.",
        ),
    ] = None,
) -> None:
    """Fetch a suite once and keep it, so that runs need no hub; SPEED-Bench: fill what can be.

    Honours HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE.

    \b
    Examples:
      peagle-bench suites prepare gsm8k
      peagle-bench suites prepare speed --from data/speed
    """

    def do() -> int:
        from peagle_bench.suite_commands import prepare_suite

        prepare_suite(_console(), name, path)
        return 0

    _guard(do)


@suites_app.command("check")
def suites_check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file or folder of traffic, or a suite's YAML.")
    ],
    profile: _OfProfile = "auto",
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Output cap to reckon with.", min=1)
    ] = None,
) -> None:
    """Say what a file of your own would send: requests, what is skipped and why, what is too long.

    Exits with 2 when nothing in it is a request, with 1 when some prompts do not fit.

    \b
    Examples:
      peagle-bench suites check traffic.jsonl
      peagle-bench suites check capture/my-endpoint/AllTraffic --profile gpt-oss-20b
    """

    def do() -> int:
        from peagle_bench.suite_commands import check_file

        return check_file(_console(), file, profile, max_tokens)

    _guard(do)


def _run(
    given: dict[str, Any],
    config_file: Path | None,
    out: Path | None,
    resume: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    from peagle_bench import planning
    from peagle_bench.errors import ConfigError
    from peagle_bench.output.console import RunView, print_plan, print_start
    from peagle_bench.reporting import analyse
    from peagle_bench.runner import begin, carry_out
    from peagle_bench.store import RunFolder

    console = _console()
    options = planning.read_config(config_file) if config_file else {}
    options |= {k: v for k, v in given.items() if v is not None}
    if resume and out is not None:
        # Options lie over the run's own, so that a mended one can be given alone.
        own = RunFolder(out).plan().config.model_dump()
        own["limit"] = own["limit"] or 0  # None is no limit, not "the profile's default"
        options = own | options
    config, profile, why = planning.resolve(options)
    prepared = planning.prepare(config, profile, why, dry=dry_run)
    print_start(console, prepared)
    where = _run_folder(prepared, out, resume)
    if dry_run:
        print_plan(console, prepared)
        if resume:
            whole = sum(where.is_whole(c) for c in prepared.plan.cells)
            console.print(f"{whole} of {len(prepared.plan.cells)} cells are whole already")
        return 0
    if where.has_manifest and not resume:
        raise ConfigError(f"{where.path} holds a run already: --resume goes on with it")
    if not where.has_manifest and not where.is_empty:
        raise ConfigError(f"{where.path} holds files that are no run: choose another --out")
    expected = planning.estimated_run_s(prepared.plan, profile)
    long_and_unasked = expected > 3600 and not yes and sys.stdin.isatty()
    if long_and_unasked and not typer.confirm("This may take over an hour. Start?"):
        return 130
    folder = RunFolder.create(where.path)
    again = f"peagle-bench run --out {shlex.quote(str(folder.path))} --resume"
    with folder.locked():
        begin(prepared, folder)
        console.print(f"run folder {folder.path}", highlight=False)
        try:
            with RunView(console, prepared.plan, profile) as view:
                outcome = carry_out(prepared, folder, view)
        except KeyboardInterrupt:
            console.print(f"interrupted; go on with: {again}", highlight=False, soft_wrap=True)
            return 130
        reported = analyse(folder)
        _show(console, folder, reported)
    if outcome.failed:
        console.print(
            f"[red]{outcome.failed} of {len(prepared.plan.cells)} cells have no numbers[/]; once "
            f"mended: {again}",
            highlight=False,
            soft_wrap=True,
        )
    return outcome.exit_code or (0 if reported.sound else 1)


def _show(console: Console, folder: RunFolder, reported: Reported) -> None:
    """Print the table and what to know of it, then write the report's files.

    In this order: a table can be read even where a report cannot be written.
    """
    from peagle_bench.output.console import findings_list, result_table
    from peagle_bench.reporting import write_report

    console.print(result_table(reported.rows, console.width))
    console.print(findings_list(reported.results, reported.failures))
    write_report(folder, reported)
    console.print(f"{folder.path / 'report.md'}", highlight=False, soft_wrap=True)


def _run_folder(prepared: Prepared, out: Path | None, resume: bool) -> RunFolder:
    """Where the run goes: --out, the newest run of the same plan, or a new folder."""
    from datetime import datetime

    from peagle_bench.errors import ConfigError, StoredRunError
    from peagle_bench.store import RunFolder

    if out is not None:
        return RunFolder(out)
    results = Path("results")
    if not resume:
        config, suites = prepared.plan.config, prepared.plan.suites
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        profile = Path(config.profile).stem
        return RunFolder(results / f"{stamp}-{profile}-{'+'.join(suites)}"[:200])
    for manifest in sorted(results.glob("*/manifest.json"), reverse=True):
        folder = RunFolder(manifest.parent)
        try:
            if folder.manifest().get("plan_digest") == prepared.plan.digest:
                return folder
        except StoredRunError:
            continue
    raise ConfigError("--resume found no run of this plan under results/: name it with --out")


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(w.strip() for w in text.split(",") if w.strip())


def _ints(option: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(w) for w in text.split(",") if w.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers like 1,3,7", param_hint=option
        ) from None


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)


def _guard(do: Any) -> None:
    """Run one command: its exit code, or one clear error and the code it stands for."""
    from peagle_bench.errors import PeagleBenchError, UsageError

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = do()
    except UsageError as error:
        code = _fail(str(error), 2)
    except PeagleBenchError as error:
        code = _fail(str(error), 3)
    except KeyboardInterrupt:
        code = _fail("interrupted", 130)
    except OSError as error:
        code = _fail(
            f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 3
        )
    except Exception as error:
        if os.environ.get("PEAGLE_BENCH_DEBUG"):
            raise
        code = _fail(
            f"a fault of peagle-bench itself: {type(error).__name__}: {error}. Please report it, "
            "with the traceback that PEAGLE_BENCH_DEBUG=1 shows",
            4,
        )
    raise typer.Exit(code)


def _fail(text: str, code: int) -> int:
    """One clear error on stderr, where there is one; the exit code it stands for."""
    with contextlib.suppress(OSError):
        typer.echo(text if code == 130 else f"error: {text}", err=True)
    return code


def _interrupt(*_: object) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: servers are stopped first."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    """The console script."""
    app()
