"""A collector sees what took how long, and whose work it was; without one, nothing."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.test_celery import engine
from tests.support.api_client import serving
from tests.support.api_server import FORM, form
from tests.support.otlp_receiver import Collector, collecting
from tests.support.scripted_server import (
    ReceivedRequest,
    Reply,
    json_reply,
    scripted_server,
)
from tests.support.shops import HEADER, lines, shops, some_shops
from tests.support.stores import Kind, everywhere, on
from tests.support.workshop import KEY, Workshop, wait_until

SERVER, CLIENT, PRODUCER = 2, 3, 4
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
DATASET = """\
[datasets.news]
key = "id"
fields = {{ id = {{ path = "id", type = "int" }} }}

[datasets.news.source]
url = "{url}/news/${{PRACTICE_KEY}}"
headers = {{ X-API-Key = "${{PRACTICE_KEY}}" }}
query = {{ key = "${{PRACTICE_KEY}}" }}
budget = "practice"
timeout = "5s"

[datasets.news.source.pages]
by = "keyset"
send = "after"
field = "id"
order = {{ sort = "id" }}
size = {{ send = "limit", value = 10 }}
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def news(request: ReceivedRequest) -> Reply:
    """Respond with 25 records, ten a page."""
    first = int(request.query.get("after", 0)) + 1
    return json_reply([{"id": number} for number in range(first, 26)[:10]])


@everywhere
def test_each_page_of_an_import_is_traced_with_its_steps(
    file_workshop: Workshop, collector: Collector
):
    workshop = file_workshop
    with scripted_server() as provider:
        provider.answers = news
        workshop.declare(DATASET.format(url=provider.url), lease="60s")

        ran = workshop.penstock("run", "news", **collector.environ)

        assert ran.code == 0, ran.err
        sent = [request.headers["traceparent"] for request in provider.requests]
    pages = collector.named("import page")
    assert len(pages) == len(sent) == workshop.pages() == 4
    assert {page.service for page in pages} == {"penstock"}
    for name in ("take token", "fetch page", "parse page", "map page", "commit page"):
        steps = collector.named(name)
        assert sorted(step.parent_id for step in steps) == sorted(
            page.span_id for page in pages
        ), name
    requests = collector.named("GET")
    # what the provider was sent names the span of its request
    assert sorted(sent) == sorted(
        f"00-{request.trace_id}-{request.span_id}-01" for request in requests
    )
    for request in requests:
        fetch = collector.parent_of(request)
        assert fetch is not None
        assert fetch.name == "fetch page"
        assert request.kind == CLIENT
        assert request.attributes["http.request.method"] == "GET"
        assert request.attributes["http.response.status_code"] == 200
        assert request.attributes["server.address"] == "127.0.0.1"
        assert request.attributes["url.full"].startswith(f"{provider.url}/news/")
    (claim,) = collector.named("claim job")
    assert claim.attributes["penstock.dataset"] == "news"
    # all of them belong to the command that planned the import
    (plan,) = collector.named("plan import")
    assert {span.parent_id for span in [claim, *pages]} == {plan.span_id}
    assert not plan.parent_id
    assert KEY.encode() not in collector.received


@everywhere
def test_the_trace_of_an_upload_reaches_the_commit_of_its_last_page(
    file_workshop: Workshop, collector: Collector
):
    workshop = file_workshop
    # many shards
    workshop.declare(shops(source='shard = "64KiB"'), lease="60s")
    content = b"".join([HEADER, lines(some_shops(8000))])
    traceparent = f"00-{TRACE}-{CALLER}-01"
    with serving(workshop, **collector.environ) as client:
        sent = client.ask(
            "POST",
            "/api/v1/datasets/shops/imports",
            body=form(("file", "shops.csv", content)),
            headers={**FORM, "traceparent": traceparent},
        )
        assert sent.status == 202, sent.body
    worker = workshop.worker("--until-idle", **collector.environ)
    assert workshop.output_of(worker).code == 0
    assert workshop.status() == "done"

    (request,) = collector.named("POST /api/v1/datasets/{dataset}/imports")
    (plan,) = collector.named("plan import")
    commits = collector.named("commit page")
    assert len(commits) == workshop.pages() > 1
    assert plan.parent_id == request.span_id
    jobs = plan.attributes["penstock.shards"]
    assert len(collector.named("claim job")) == jobs > 1
    for name in ("claim job", "import page"):
        assert {span.parent_id for span in collector.named(name)} == {plan.span_id}
    # all of it is one trace: that of the client
    assert sent.headers["x-trace-id"] == TRACE
    assert {span.trace_id for span in collector.spans} == {TRACE}


@everywhere
def test_the_pages_of_a_planned_import_continue_the_trace_of_its_request(
    file_workshop: Workshop, collector: Collector
):
    workshop = file_workshop
    with scripted_server() as provider:
        provider.answers = news
        workshop.declare(DATASET.format(url=provider.url), lease="60s")
        with serving(workshop, **collector.environ) as client:
            begun = client.post("/api/v1/datasets/news/imports", {})
            assert begun.status == 202, begun.body
            # planned after the response
            wait_until(lambda: workshop.status() == "running")
            unsampled = client.get("/api/v1/imports", traceparent="00-x-y-01")
        worker = workshop.worker("--until-idle", **collector.environ)
        assert workshop.output_of(worker).code == 0
        sent = {request.headers["traceparent"] for request in provider.requests}

    trace = begun.headers["x-trace-id"]
    assert {span.trace_id for span in collector.named("plan import")} == {trace}
    assert {span.trace_id for span in collector.named("commit page")} == {trace}
    assert len(sent) == len(collector.named("commit page")) == 4
    assert all(header.startswith(f"00-{trace}-") for header in sent)
    # a malformed parent is none
    assert unsampled.headers["x-trace-id"] != trace


@on(Kind.POSTGRES)
def test_one_trace_leads_through_celery(
    workshop: Workshop, collector: Collector, redis_url: str
):
    workshop.declare(workshop.by_country(), more=engine(redis_url), lease="60s")
    assert workshop.penstock("plan", "poi", **collector.environ).code == 0

    running = workshop.celery(
        *("worker", "-Q", "penstock", "-l", "warning", "--concurrency", "2"),
        **collector.environ,
    )
    wait_until(workshop.is_finished)
    running.send_signal(signal.SIGTERM)
    assert workshop.output_of(running).code == 0

    (plan,) = collector.named("plan import")
    sent = collector.named("send penstock")
    assert sent
    assert {span.kind for span in sent} == {PRODUCER}
    commits = collector.named("commit page")
    # what was committed last was exported, too
    assert len(commits) == workshop.pages()
    for span in (*sent, *commits):
        assert span.trace_id == plan.trace_id


def test_an_import_that_was_not_sampled_is_not_traced_anywhere(
    workshop: Workshop, collector: Collector
):
    never = {**collector.environ, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    assert workshop.penstock("plan", "poi", **never).code == 0

    worker = workshop.worker("--until-idle", **collector.environ)

    assert workshop.output_of(worker).code == 0
    assert workshop.status() == "done"
    assert not collector.named("import page")
    assert not collector.named("GET")


def test_a_failed_request_fails_its_spans(
    file_workshop: Workshop, collector: Collector
):
    workshop = file_workshop
    with scripted_server() as provider:
        provider.script(Reply(status=404, body=f"no {KEY} here".encode()))
        workshop.declare(DATASET.format(url=provider.url), lease="60s")

        assert workshop.penstock("run", "news", **collector.environ).code == 1

    (request,) = collector.named("GET")
    assert request.failed
    assert request.attributes["error.type"] == "404"
    (page,) = collector.named("import page")
    assert page.failed
    assert KEY.encode() not in collector.received


def test_a_request_continues_the_trace_of_its_client(
    imported: Workshop, collector: Collector
):
    with serving(imported, **collector.environ) as client:
        path = "/api/v1/datasets/poi/records"
        continued = client.get(path, traceparent=f"00-{TRACE}-{CALLER}-01")
        begun = client.get(f"{path}/1")
        unsampled = client.get(f"{path}/2", traceparent=f"00-{TRACE}-{CALLER}-00")
        missing = client.get(f"{path}/x")
        health = client.get("/api/health")

    assert (continued.status, health.status) == (200, 200)
    (span,) = collector.named("GET /api/v1/datasets/{dataset}/records")
    assert (span.trace_id, span.parent_id, span.kind) == (TRACE, CALLER, SERVER)
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["http.route"] == "/api/v1/datasets/{dataset}/records"
    assert continued.headers["x-trace-id"] == TRACE
    assert [
        query.trace_id
        for query in collector.named("query")
        if query.parent_id == span.span_id
    ] == [TRACE]
    # what a response names is the trace of its request; one was not sampled
    ids = {begun.headers["x-trace-id"], missing.headers["x-trace-id"]}
    spans = collector.named("GET /api/v1/datasets/{dataset}/records/{key}")
    assert {span.trace_id for span in spans} == ids
    assert unsampled.headers["x-trace-id"] == TRACE
    assert missing.json["trace_id"] in ids
    # neither probes nor polls
    roots = {span.name for span in collector.spans if not span.parent_id}
    assert roots == {"GET /api/v1/datasets/{dataset}/records/{key}"}


@pytest.mark.parametrize(
    "switch",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
    ],
)
def test_nothing_is_exported_if_it_is_switched_off(
    workshop: Workshop, collector: Collector, switch: dict[str, Any]
):
    ran = workshop.penstock("run", "poi", **collector.environ, **switch)

    assert ran.code == 0, ran.err
    assert not collector.spans


def test_a_collector_that_is_away_costs_a_line_in_the_log(workshop: Workshop):
    workshop.penstock("plan", "poi")
    # nothing listens on port 9
    worker = workshop.worker(
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_BSP_SCHEDULE_DELAY="50"
    )
    wait_until(workshop.is_finished)
    wait_until(
        lambda: any(
            line["event"] == "trace_export_failed" for line in workshop.log_of(worker)
        )
    )
    worker.terminate()

    ran = workshop.output_of(worker)

    assert ran.code == 0
    assert workshop.status() == "done"
    # nothing but JSON
    lines = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert lines.count("trace_export_failed") == 1


def test_a_protocol_without_its_library_is_reported(workshop: Workshop):
    workshop.penstock("plan", "poi")

    worker = workshop.worker(
        "--until-idle",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )

    assert workshop.output_of(worker).code == 0
    failures = [
        line["error"]
        for line in workshop.log_of(worker)
        if line["event"] == "trace_export_failed"
    ]
    assert failures == [
        "traces are sent by http/protobuf, not by grpc; set OTEL_EXPORTER_OTLP_PROTOCOL"
    ]
