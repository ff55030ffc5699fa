"""Load `penstock.toml`, and report all problems at once."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias, TypeVar

from pydantic import ValidationError

from penstock.domain.dataset import Dataset
from penstock.domain.redaction import Redactor
from penstock.domain.scheduling.schedule import ScheduleDeclaration
from penstock.domain.source import Paging
from penstock.errors import Misconfigured
from penstock.ports import Redact
from penstock.settings.model import Settings
from penstock.settings.models.api import ApiTable, build_api_settings
from penstock.settings.models.auth import AccessTable, auth_secrets, build_auth
from penstock.settings.models.base import (
    BudgetTable,
    CeleryTable,
    PenstockTable,
    RetentionTable,
    TomlModel,
    as_budget_name,
    as_own_name,
    as_plain,
)
from penstock.settings.models.dataset import (
    AnyDatasetTable,
    CsvDatasetTable,
    DatasetTable,
)
from penstock.settings.models.hooks import HookTable, build_hook, hook_secrets
from penstock.settings.rules import (
    ValidationContext,
    cycle_rules,
    dataset_rules,
    name_rules,
    reference_type_rules,
)
from penstock.settings.schedules import circle_rules, parse_schedule
from penstock.settings.secrets import EnvInterpolator, credentials, likely_credentials
from penstock.settings.to_domain import build_budget, build_dataset, build_retention
from penstock.settings.urls import server_passwords
from penstock.settings.validation_errors import (
    MAX_MESSAGE_LENGTH,
    InvalidValue,
    KeyPath,
    Problem,
    TriedModels,
    describe_choices,
    describe_type,
    spell,
    to_problems,
    unknown_key,
)

Table = TypeVar("Table", bound=TomlModel)
Tree: TypeAlias = dict[str, object]

UNSAFE_LINK_URL = (
    "holds a secret, and the provider's next links, which repeat it, are stored in the "
    "ledger; send it in headers or in query"
)
SOURCE_TYPES = ("csv", "http")
# the quotes of word processors
CURLY_QUOTES = re.compile("[\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\xab\xbb]")
SECTIONS = (
    *("penstock", "budgets", "datasets", "schedules"),
    *("auth", "api", "celery", "retention", "hooks"),
)


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Load the settings, or raise `Misconfigured` with all problems."""
    interpolator = EnvInterpolator(environ)
    tree = interpolator.fill(parse(path, read(path)))
    reader = SettingsReader(interpolator.problems)
    tables = tree if isinstance(tree, dict) else {}
    declaration = reader.declare(tables)
    secrets = dict(interpolator.secrets)
    sources = dict(find_sources(tables))
    short = set[str]()
    for at, source in sources.items():
        for key_path, value in credentials(source):
            secrets.setdefault(value, f"${{{spell((*at, *key_path))}}}")
            if key_path[0] == "auth":
                short.add(value)
    problems = [*reader.problems(), *find_secret_urls(declaration, Redactor(secrets))]
    # added after the rule above: no request carries them
    for key_path, value in (
        *server_passwords(tables.get("penstock")),
        *auth_secrets(tables.get("auth")),
        *hook_secrets(tables.get("hooks")),
    ):
        secrets.setdefault(value, f"${{{spell(key_path)}}}")
    likely = {
        value: f"${{{spell((*at, *key_path))}}}"
        for at, source in sources.items()
        for key_path, value in likely_credentials(source)
    }
    redact = Redactor({**likely, **secrets}, short)
    if problems:
        messages = (format_problem(path, problem, redact) for problem in problems)
        raise Misconfigured(*map(shorten, messages))
    penstock = declaration.penstock
    datasets = build_datasets(declaration, path)
    schedules, found = build_schedules(declaration, datasets)
    if found:
        raise Misconfigured(
            *(format_problem(path, problem, redact) for problem in found)
        )
    return Settings(
        path=path,
        database=penstock.database,
        replicas=tuple(penstock.replicas),
        redis=penstock.redis,
        schema=penstock.schema_name,
        lease=penstock.lease,
        longest_wait=penstock.wait,
        spool=path.parent / penstock.spool,
        commit_timeout=penstock.commit_timeout,
        attempts=penstock.attempts,
        budgets={
            name: build_budget(name, table)
            for name, table in declaration.budgets.items()
        },
        datasets=datasets,
        schedules=schedules,
        auth=None if declaration.auth is None else build_auth(declaration.auth),
        api=build_api_settings(declaration.api),
        engine=penstock.engine,
        broker=penstock.broker,
        celery=declaration.celery,
        retention=build_retention(declaration.retention),
        hooks={
            name: build_hook(name, table) for name, table in declaration.hooks.items()
        },
        secrets=secrets,
        redact=redact,
    )


def build_datasets(declaration: "Declaration", path: Path) -> dict[str, Dataset]:
    folder, spool = path.parent, path.parent / declaration.penstock.spool
    return {
        name: build_dataset(name, table, folder=folder, spool=spool)
        for name, table in declaration.datasets.items()
    }


def build_schedules(
    declaration: "Declaration", datasets: Mapping[str, Dataset]
) -> tuple[dict[str, ScheduleDeclaration], list[Problem]]:
    """Return the declared schedules, and what is wrong with them."""
    schedules, problems = {}, list[Problem]()
    parsed = {}
    for name, (at, fields) in declaration.schedules.items():
        schedule, found = parse_schedule(name, fields, datasets)
        problems += [((*at, *deeper), sentence) for deeper, sentence in found]
        if schedule is not None and not found:
            parsed[name] = schedule
            schedules[name] = ScheduleDeclaration(
                name=schedule.name, dataset=schedule.dataset, fields=fields
            )
    problems += [
        (("schedules", *deeper), sentence) for deeper, sentence in circle_rules(parsed)
    ]
    return schedules, problems


def find_sources(tables: Tree) -> Iterator[tuple[KeyPath, Tree]]:
    """Yield the sources as written, whether they are valid or not."""
    datasets = tables.get("datasets")
    for name, table in datasets.items() if isinstance(datasets, dict) else ():
        source = table.get("source") if isinstance(table, dict) else None
        if isinstance(source, dict):
            yield ("datasets", name, "source"), source


def find_secret_urls(declaration: "Declaration", redact: Redact) -> Iterator[Problem]:
    """Find URLs with a secret where the provider's next links are stored."""
    for name, table in declaration.datasets.items():
        if not isinstance(table, DatasetTable):
            continue
        pages, url = table.source.pages, table.source.url
        follows_links = pages is not None and pages.by is Paging.LINK
        if follows_links and redact(url) != url:
            yield ("datasets", name, "source", "url"), UNSAFE_LINK_URL


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise Misconfigured(
            f"{path}: there is no such file; write one with: penstock init"
        ) from None
    except IsADirectoryError:
        raise Misconfigured(f"{path}: is a folder, not a file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Misconfigured(f"{path}: line {line}: is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Misconfigured(f"{path}: cannot be read: {reason}") from error


def parse(path: Path, text: str) -> Tree:
    # a byte order mark is not valid TOML, but editors write one
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        message, _, location = str(error).rpartition(" (at ")
        location = location.removesuffix(")").replace(
            "end of document", last_line(text)
        )
        detail = message[:1].lower() + message[1:]
        raise Misconfigured(
            f"{path}: {location}: {detail}{quote_hint(text, location)}"
        ) from None
    except RecursionError:
        raise Misconfigured(f"{path}: is nested too deeply") from None
    except (ValueError, ArithmeticError):
        raise Misconfigured(f"{path}: holds a number that is too long") from None


def quote_hint(text: str, location: str) -> str:
    """Return a hint if the line has quotes of a word processor."""
    found = re.search(r"line ([0-9]+)", location)
    line = text.split("\n")[int(found[1]) - 1 :][:1] if found else []
    curly = CURLY_QUOTES.search(line[0]) if line else None
    if curly is None:
        return ""
    return f"; {curly[0]} is no quote of TOML: write \" or ' instead"


def last_line(text: str) -> str:
    return f"line {text.count(chr(10)) + 1}, the end of the file"


def format_problem(path: Path, problem: Problem, redact: Redact) -> str:
    """Format a problem without secrets; shortened before, a part of one would stay."""
    at, sentence = problem
    line = f"{path}: {spell(at)}: {sentence}"
    # No message about these keys shows a value. A secret that is too short may be a
    # word of the message, and redacting that word would reveal the secret.
    return line if is_secret_path(at) else redact(line)


def is_secret_path(at: KeyPath) -> bool:
    match at:
        case ("auth", "secret") | ("hooks", _, "secret"):
            return True
        case _:
            return False


def shorten(sentence: str) -> str:
    if len(sentence) <= MAX_MESSAGE_LENGTH:
        return sentence
    return f"{sentence[: MAX_MESSAGE_LENGTH - 1]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The valid tables."""

    penstock: PenstockTable
    budgets: Mapping[str, BudgetTable]
    datasets: Mapping[str, AnyDatasetTable]
    # where each is written, and its fields in JSON's types
    schedules: Mapping[str, tuple[KeyPath, Mapping[str, object]]]
    auth: AccessTable | None
    api: ApiTable
    celery: CeleryTable
    retention: RetentionTable
    hooks: Mapping[str, HookTable]


@dataclass(slots=True)
class SettingsReader:
    """Validates the whole tree, and collects problems instead of stopping at one."""

    # variables that could not be filled; other problems of such values would mislead
    gaps: list[Problem]
    found: list[Problem] = field(default_factory=list)

    def problems(self) -> list[Problem]:
        unfilled = {at for at, _ in self.gaps}
        rest = [problem for problem in self.found if problem[0] not in unfilled]
        return list(dict.fromkeys([*self.gaps, *rest]))

    def declare(self, tree: Tree) -> Declaration:
        """Check every table, then the rules between the valid ones."""
        for key in tree:
            if key not in SECTIONS:
                self.found.append(((key,), unknown_key((key,), SECTIONS)))
        penstock = self.table(PenstockTable, tree.get("penstock", {}), ("penstock",))
        budgets = self.budgets(tree)
        datasets = self.datasets(tree)
        auth = (
            self.table(AccessTable, tree["auth"], ("auth",)) if "auth" in tree else None
        )
        api = self.table(ApiTable, tree.get("api", {}), ("api",))
        celery = self.table(CeleryTable, tree.get("celery", {}), ("celery",))
        retention = self.table(
            RetentionTable, tree.get("retention", {}), ("retention",)
        )
        context = ValidationContext(
            penstock=penstock,
            budgets=frozenset(names_in(tree.get("budgets"))),
            datasets=fields_by_dataset(tree),
        )
        for name, table in datasets.items():
            for at, sentence in dataset_rules(table, context):
                self.found.append((("datasets", name, *at), sentence))
        self.found.extend(name_rules(context.datasets, context))
        self.found.extend(cycle_rules(datasets))
        self.found.extend(reference_type_rules(datasets))
        return Declaration(
            penstock=penstock or PenstockTable(),
            budgets=budgets,
            datasets=datasets,
            schedules=self.schedules(tree, datasets),
            auth=auth,
            api=api or ApiTable(),
            celery=celery or CeleryTable(),
            retention=retention or RetentionTable(),
            hooks=self.hooks(tree),
        )

    def budgets(self, tree: Tree) -> dict[str, BudgetTable]:
        read_tables = {}
        for name, given in self.entries(tree, "budgets"):
            self.check_name(as_budget_name, name, ("budgets", name))
            table = self.table(BudgetTable, given, ("budgets", name))
            if table is not None:
                read_tables[name] = table
        return read_tables

    def hooks(self, tree: Tree) -> dict[str, HookTable]:
        read_tables = {}
        for name, given in self.entries(tree, "hooks"):
            self.check_name(as_budget_name, name, ("hooks", name))
            table = self.table(HookTable, given, ("hooks", name))
            if table is not None:
                read_tables[name] = table
        return read_tables

    def datasets(self, tree: Tree) -> dict[str, AnyDatasetTable]:
        read_tables: dict[str, AnyDatasetTable] = {}
        if not tree.get("datasets"):
            message = "is required; declare a dataset as [datasets.NAME]"
            self.found.append((("datasets",), message))
        for name, written in self.entries(tree, "datasets"):
            at: KeyPath = ("datasets", name)
            self.check_name(as_own_name, name, at)
            given = self.typed(written, (*at, "source", "type"))
            table = (
                self.table(CsvDatasetTable, given, at)
                if is_csv(given)
                else self.table(DatasetTable, given, at)
            )
            if table is not None:
                read_tables[name] = table
        return read_tables

    def schedules(
        self, tree: Tree, datasets: Mapping[str, AnyDatasetTable]
    ) -> dict[str, tuple[KeyPath, Mapping[str, object]]]:
        """Return the tables of schedules, and the short forms in datasets."""
        written: dict[str, tuple[KeyPath, Mapping[str, object]]] = {}
        for name, given in self.entries(tree, "schedules"):
            at: KeyPath = ("schedules", name)
            self.check_name(as_budget_name, name, at)
            if not isinstance(given, dict):
                message = f"must be a table, not {describe_type(given)}"
                self.found.append((at, message))
                continue
            written[name] = (at, plain_fields(given))
        tables = tree.get("datasets")
        for name, table in datasets.items():
            given = tables.get(name, {}) if isinstance(tables, dict) else {}
            for trigger in table.model_fields_set & {"cron", "every"}:
                at = ("datasets", name)
                if name in written:
                    message = f"[schedules.{name}] has the same name; keep one of them"
                    self.found.append(((*at, trigger), message))
                written[name] = (at, {"dataset": name, trigger: given[trigger]})
        return written

    def typed(self, given: object, at: KeyPath) -> object:
        """Return a dataset with a valid source type; add a problem if it has none."""
        source = given.get("source") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(source, dict):
            return given
        written, is_of_files = source.get("type"), "files" in source
        if written in SOURCE_TYPES or (written is None and not is_of_files):
            return given
        if written is None:
            self.found.append((at, 'is required for files; add type = "csv"'))
        else:
            self.found.append((at, describe_choices(written, [*SOURCE_TYPES])))
        # report other problems for the type that was probably meant
        probable_type = "csv" if is_of_files else "http"
        return {**given, "source": {**source, "type": probable_type}}

    def entries(self, tree: Tree, section: str) -> Iterator[tuple[str, object]]:
        given = tree.get(section, {})
        if isinstance(given, dict):
            yield from given.items()
        else:
            message = (
                f"must be tables, such as [{section}.NAME], not {describe_type(given)}"
            )
            self.found.append(((section,), message))

    def check_name(self, check: Callable[[str], str], name: str, at: KeyPath) -> None:
        try:
            check(name)
        except InvalidValue as error:
            self.found.append((at, str(error)))

    def table(self, model: type[Table], given: object, at: KeyPath) -> Table | None:
        """Validate one table, or add all its problems."""
        tried: TriedModels = {}
        try:
            return model.model_validate(given, context=tried)
        except ValidationError as error:
            self.found.extend(to_problems(error, given, at=at, tried=tried))
            return None


def plain_fields(given: Mapping[str, object]) -> Mapping[str, object]:
    """Convert the values of a table to JSON's types, as they are stored."""
    return {key: as_plain(value) for key, value in given.items()}


def is_csv(given: object) -> bool:
    source = given.get("source") if isinstance(given, dict) else None
    return isinstance(source, dict) and source.get("type") == "csv"


def names_in(table: object) -> list[str]:
    return [*table] if isinstance(table, dict) else []


def fields_by_dataset(tree: Tree) -> dict[str, frozenset[str]]:
    """Return the names of all fields, even of invalid datasets."""
    datasets = tree.get("datasets")
    if not isinstance(datasets, dict):
        return {}
    return {
        name: frozenset(names_in(given.get("fields")))
        for name, given in datasets.items()
        if isinstance(given, dict)
    }
