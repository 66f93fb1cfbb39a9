import { expect, test } from "vitest";
import { exposition } from "../../../../../src/agent/telemetry/metrics/exposition.ts";
import {
  familiesOf,
  MAX_ITEMS,
  OTHERS,
  type ScrapeReading,
} from "../../../../../src/agent/telemetry/metrics/families.ts";
import { FakeLocalProvider, overlayUp } from "../../../../support/fake-local-provider.ts";
import { readPrometheusText } from "../../../../support/prometheus-text.ts";

const counters = (bytesIn: number) => ({
  flowsActive: 1,
  flowsTotal: 2,
  bytesIn,
  bytesOut: 4,
  datagramsDropped: 0,
  refusals: { "too-many-flows": 3 },
  errors: {},
});

function reading(changes: Partial<ScrapeReading> = {}): ScrapeReading {
  const provider = new FakeLocalProvider();
  return {
    status: provider.status(),
    why: provider.why(),
    containers: provider.containers(),
    triggers: { running: 1, succeeded: 2, failed: 3 },
    transfers: 4,
    eventLoop: { meanSeconds: 0.001, p99Seconds: 0.002, maxSeconds: 0.003 },
    ...changes,
  };
}

const connectors = (ids: readonly string[]): NonNullable<ScrapeReading["connectors"]> => ({
  schema: 1,
  overlay: overlayUp,
  issues: [],
  connectors: ids.map((id) => ({ id, state: "listening", counters: counters(10) })),
});

async function scraped(changes: Partial<ScrapeReading> = {}) {
  return readPrometheusText((await exposition(familiesOf(reading(changes)))).text);
}

test("names, units and types follow the conventions of Prometheus", async () => {
  const families = await scraped({ connectors: connectors(["web"]) });
  expect(families.size).toBeGreaterThan(30);
  for (const [name, { type, help }] of families) {
    expect(name).toMatch(/^holdfast_[a-z0-9_]+$/);
    expect(name).not.toMatch(/milliseconds|_ms|kilo|mega|_bits/);
    expect(help).toMatch(/\.$/);
    expect(name.endsWith("_total")).toBe(type === "counter");
  }
});

test("reports the state of the node", async () => {
  const families = await scraped({ connectors: connectors(["web"]) });
  const value = (name: string, labels: object = {}): number | undefined =>
    families.get(name)?.samples.find((sample) => JSON.stringify(sample.labels) === JSON.stringify(labels))?.value;
  expect(value("holdfast_session_state", { state: "online" })).toBe(1);
  expect(value("holdfast_session_state", { state: "waiting" })).toBe(0);
  expect(value("holdfast_session_rtt_seconds")).toBe(0.001_25);
  expect(value("holdfast_resident_memory_bytes")).toBe(62_000_000);
  expect(value("holdfast_document_version", { document: "node" })).toBe(7);
  expect(value("holdfast_section_state", { section: "connectors", state: "unsupported" })).toBe(1);
  expect(value("holdfast_triggers_total", { outcome: "failed" })).toBe(3);
  expect(value("holdfast_connector_received_bytes_total", { connector: "web" })).toBe(10);
  expect(value("holdfast_flows_refused_total", { reason: "too-many-flows" })).toBe(3);
  expect(value("holdfast_transfers_open")).toBe(4);
});

test("a thousand connectors have a bounded number of series, with complete sums", async () => {
  const ids = Array.from({ length: 1000 }, (_, at) => `c${String(at).padStart(4, "0")}`);
  const samples = (await scraped({ connectors: connectors(ids) })).get(
    "holdfast_connector_received_bytes_total",
  )?.samples;
  expect(samples).toHaveLength(MAX_ITEMS + 1);
  expect(samples?.at(-1)).toMatchObject({ labels: { connector: OTHERS }, value: 10 * (1000 - MAX_ITEMS) });
});

test("the text is valid for any characters of an id", async () => {
  const id = 'a"b\\c\nd{}=,';
  const [sample] =
    (await scraped({ connectors: connectors([id]) })).get("holdfast_connector_flows_active")?.samples ?? [];
  expect(sample?.labels).toEqual({ connector: id });
});

test("skips what cannot be read", async () => {
  const families = await scraped();
  expect([...families.keys()].filter((name) => name.startsWith("holdfast_connector_"))).toEqual([]);
  expect(families.has("holdfast_container_engine_up")).toBe(false);
});
