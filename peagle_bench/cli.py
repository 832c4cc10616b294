"""The command line: parse, call one function, map the result to an exit code.

Exit codes: 0 done · 1 some cells failed · 2 usage · 3 nothing measured · 130 interrupted.
Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peagle_bench import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from peagle_bench.planning import Prepared
    from peagle_bench.store import RunFolder

EXITS = (
    "Exit codes: 0 done · 1 some cells failed · 2 usage error, nothing written · "
    "3 nothing measured · 130 interrupted (--resume goes on)."
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
        typer.Option("--suite", "-s", help="Prompts to drive; may be given several times."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", "-m", help="Comma-separated: baseline, eagle3, peagle, ngram, …"),
    ] = None,
    depths: Annotated[
        str | None,
        typer.Option("--depths", "-k", help="Draft depths K, comma-separated (not for baseline)."),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", "-c", help="Requests in flight, comma-separated."),
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
        typer.Option(help="Prompts per suite, a sample drawn by --seed; 0: all.", min=0),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Output tokens per request at most.", min=1)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Sent with every request.  [default: the suite's]", min=0.0),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the prompt sample and of sampling.  [default: 0]")
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help="Measure everything N times on fresh servers.  [default: 1]", min=1),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Requests per cell that do not count.", min=0)
    ] = None,
    keep_text: Annotated[
        bool | None,
        typer.Option("--keep-text", help="Keep outputs' text in the run folder."),
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds to a response's first byte.  [default: 600]", min=0.001),
    ] = None,
    ready_timeout: Annotated[
        float | None,
        typer.Option(help="Seconds for a server to become ready.  [default: 900]", min=0.001),
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
        bool, typer.Option("--dry-run", help="Print the plan and how long it may take.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a run of over an hour.")
    ] = False,
) -> None:
    """Start the servers one after another, drive the suites at them, and report.

    \b
    Examples:
      peagle-bench run
      peagle-bench run --suite humaneval --methods baseline,eagle3,peagle --depths 3,5,7
      peagle-bench run -m p-eagle,eagle-3 -k 7 -c 1,4,16 --limit 64 --repeats 3
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
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "repeats": repeats,
        "warmup": warmup,
        "keep_text": keep_text,
        "request_timeout_s": request_timeout,
        "ready_timeout_s": ready_timeout,
        "vllm_python": vllm_python,
        "server_command": server_command,
        "server_flags": _flags(server_flag),
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
        from peagle_bench.output.console import findings_list, result_table
        from peagle_bench.reporting import write_report
        from peagle_bench.store import RunFolder

        reported = write_report(RunFolder(run_folder))
        console = _console()
        console.print(result_table(reported.rows, console.width))
        console.print(findings_list(reported.results))
        typer.echo(f"{run_folder / 'report.md'}")
        return 0 if reported.results else 3

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
            typer.echo(f"{name:<16} {found.title} · {need} · heads: {', '.join(found.heads)}")
        return 0

    _guard(do)


@app.command()
def suites() -> None:
    """List the suites: where their prompts come from and under which licence."""

    def do() -> int:
        from peagle_bench.suites.catalog import suite_named, suite_names

        for name in suite_names():
            found = suite_named(name)
            typer.echo(f"{name:<16} {found.title} · {found.source} · {found.license}")
        return 0

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
    from peagle_bench.output.console import (
        RunView,
        findings_list,
        print_plan,
        print_start,
        result_table,
    )
    from peagle_bench.reporting import write_report
    from peagle_bench.runner import carry_out, manifest_facts
    from peagle_bench.store import RunFolder

    console = _console()
    options = planning.read_config(config_file) if config_file else {}
    options |= {k: v for k, v in given.items() if v is not None}
    if resume and out is not None and not options:
        options = RunFolder(out).plan().config.model_dump()
    config, profile, why = planning.resolve(options)
    prepared = planning.prepare(config, profile, why, dry=dry_run)
    print_start(console, prepared)
    if dry_run:
        print_plan(console, prepared)
        return 0
    where = _run_folder(prepared, out, resume)
    if where.has_manifest:
        if not resume:
            raise ConfigError(f"{where.path} holds a run already: --resume goes on with it")
        if where.plan().config != prepared.plan.config:
            console.print("[yellow]note:[/] the plan has changed; cells that still match are kept")
    expected = planning.estimated_run_s(prepared.plan, profile)
    if expected > 3600 and not yes and sys.stdin.isatty():
        typer.confirm("This may take over an hour. Start?", abort=True)
    folder = RunFolder.create(where.path)
    folder.write_manifest(prepared.plan, manifest_facts(prepared))
    console.print(f"run folder {folder.path}", highlight=False)
    try:
        with RunView(console, prepared.plan, profile) as view:
            outcome = carry_out(prepared, folder, view)
    except KeyboardInterrupt:
        console.print(f"interrupted; go on with: peagle-bench run --out {folder.path} --resume")
        return 130
    if outcome.measured:
        reported = write_report(folder)
        console.print(result_table(reported.rows, console.width))
        console.print(findings_list(reported.results))
        console.print(f"{folder.path / 'report.md'}", highlight=False, soft_wrap=True)
    if outcome.failed:
        console.print(
            f"[red]{outcome.failed} of {len(prepared.plan.cells)} cells have no numbers[/]; once "
            f"mended: peagle-bench run --out {folder.path} --resume",
            highlight=False,
            soft_wrap=True,
        )
    return outcome.exit_code


def _run_folder(prepared: Prepared, out: Path | None, resume: bool) -> RunFolder:
    """Where the run goes: --out, the newest run of the same plan, or a new folder."""
    from datetime import datetime

    from peagle_bench.errors import ConfigError, StoredRunError
    from peagle_bench.store import RunFolder

    if out is not None:
        return RunFolder(out)
    results = Path("results")
    if not resume:
        config = prepared.plan.config
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        profile = Path(config.profile).stem
        return RunFolder(results / f"{stamp}-{profile}-{'+'.join(config.suites)}")
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


def _flags(words: list[str] | None) -> dict[str, bool | str] | None:
    """`name=value`, `name` or `no-name` as the server's flags."""
    if not words:
        return None
    flags: dict[str, bool | str] = {}
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if equals:
            flags[name] = value
        else:
            flags[name.removeprefix("no-")] = not name.startswith("no-")
    return flags


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)


def _guard(do: Any) -> None:
    """Run one command: its exit code, or one clear error and the code it stands for."""
    from peagle_bench.errors import PeagleBenchError, UsageError

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = do()
    except UsageError as error:
        typer.echo(f"error: {error}", err=True)
        code = 2
    except PeagleBenchError as error:
        typer.echo(f"error: {error}", err=True)
        code = 3
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        code = 130
    raise typer.Exit(code)


def _interrupt(*_: object) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: servers are stopped first."""
    raise KeyboardInterrupt


def main() -> None:
    """The console script."""
    app()
