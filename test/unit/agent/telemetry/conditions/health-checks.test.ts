import { expect, test } from "vitest";
import { createEventLog } from "../../../../../src/agent/telemetry/events.ts";
import { checkDns, startHealthChecks } from "../../../../../src/agent/telemetry/conditions/health-checks.ts";
import type { HealthCheckOptions, HealthResults } from "../../../../../src/agent/telemetry/conditions/health-checks.ts";
import type { ServerAnswer } from "../../../../../src/host/net/resolver.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";

const HOUR = 3_600_000;
const never = new AbortController().signal;

/** Checks with servers that answer `answers`. */
function checks(options: Partial<HealthCheckOptions> = {}) {
  const clock = new FakeClock();
  const events: NodeEvent[] = [];
  const results: HealthResults[] = [];
  const errors: unknown[] = [];
  const answers = new Map<string, ServerAnswer>([["192.0.2.1", "ok"]]);
  const requested: string[] = [];
  const health = startHealthChecks({
    clock,
    events: createEventLog({ clock, sink: (event) => events.push(event) }),
    name: "control.example.org",
    servers: () => [...answers.keys()],
    ask: async (server, name) => {
      requested.push(`${server} ${name}`);
      return answers.get(server) ?? "unreachable";
    },
    isSshLocal: () => undefined,
    repository: undefined,
    onResults: (result) => results.push(result),
    onError: (error) => errors.push(error),
    ...options,
  });
  const messages = (): string[] => events.map(({ level, message }) => `${level} ${message}`);
  return { clock, events, results, errors, answers, requested, health, messages };
}

test("checks DNS a minute after the start and then hourly", async () => {
  const { clock, requested, health, messages } = checks();
  await clock.advance(59_999);
  expect(requested).toEqual([]);
  await clock.advance(1);
  expect(requested).toEqual(["192.0.2.1 control.example.org"]);
  expect(health.results().dns).toEqual({ isHealthy: true, servers: [{ server: "192.0.2.1", answer: "ok" }] });
  await clock.advance(3 * HOUR);
  expect(requested.length).toBe(4);
  expect(messages()).toEqual([]);
});

test("the first session checks DNS and the repository, later ones do not", async () => {
  let asked = 0;
  const repository = async () => {
    asked += 1;
    return "ok" as const;
  };
  const { clock, requested, health } = checks({ repository });
  health.sessionOpened();
  await clock.advance(0);
  expect(health.results()).toMatchObject({ dns: { isHealthy: true }, repository: "ok" });
  health.sessionOpened();
  await clock.advance(HOUR - 1);
  expect({ dns: requested.length, repository: asked }).toEqual({ dns: 1, repository: 1 });
});

test("a failure needs three tries, is raised once with each server's answer, and cleared at the first success", async () => {
  const { clock, answers, requested, events, health, messages } = checks();
  answers.set("192.0.2.1", "unreachable").set("192.0.2.2", "name-not-resolved");
  await clock.advance(60_000 + 19_999);
  expect(messages()).toEqual([]);
  await clock.advance(1);
  expect(requested.length).toBe(6);
  expect(messages()).toEqual(["ERROR DNS resolution failed"]);
  expect(events[0]?.details).toMatchObject({
    name: "control.example.org",
    servers: { "192.0.2.1": "unreachable", "192.0.2.2": "name-not-resolved" },
  });
  await clock.advance(HOUR);
  expect(messages().length).toBe(1);
  answers.set("192.0.2.2", "ok");
  await health.checkDns();
  expect(messages().slice(1)).toEqual(["INFO DNS resolution re-established"]);
});

test("one resolving server is enough, and one success among the tries", async () => {
  const { clock, answers, messages } = checks();
  answers.set("192.0.2.1", "unreachable");
  await clock.advance(70_000);
  answers.set("192.0.2.2", "ok");
  await clock.advance(10_000);
  expect(messages()).toEqual([]);
});

test("no server at all is unhealthy", async () => {
  const check = {
    name: "control.example.org",
    servers: () => [],
    ask: async () => "ok" as const,
    clock: new FakeClock(),
  };
  const result = checkDns(check, never);
  await check.clock.advance(0);
  await check.clock.advance(20_000);
  expect(await result).toEqual({ isHealthy: false, servers: [] });
});

test("an address or localhost needs no DNS and gives no result", async () => {
  for (const name of ["192.0.2.9", "fd00::9", "localhost", "control.localhost"]) {
    const { clock, requested, health } = checks({ name });
    await clock.advance(2 * HOUR);
    expect(requested).toEqual([]);
    expect(health.results().dns).toBeUndefined();
  }
});

test("an operator's check joins the running one", async () => {
  const { requested, health } = checks();
  await Promise.all([health.checkDns(), health.checkDns()]);
  expect(requested.length).toBe(1);
});

test("SSH at the start: local, exposed, unknown", () => {
  const exposed = checks({ isSshLocal: () => false });
  expect(exposed.results[0]?.isSshLocal).toBe(false);
  expect(exposed.messages()).toEqual(["ERROR SSH is reachable on an address that is not local"]);
  expect(checks({ isSshLocal: () => true }).messages()).toEqual([]);
  expect(checks().results[0]?.isSshLocal).toBeUndefined();
});

test("the next check clears SSH that was locked down", () => {
  let isLocal = false;
  const { health, messages } = checks({ isSshLocal: () => isLocal });
  isLocal = true;
  health.checkSsh();
  expect(messages()[1]).toBe("INFO SSH listens locally only");
});

test("checks the repository daily, three times before it counts as failed", async () => {
  let answer: "ok" | "port-not-reachable" = "ok";
  let requested = 0;
  const repository = async (): Promise<typeof answer> => {
    requested += 1;
    return answer;
  };
  const { clock, health, messages } = checks({ repository });
  await clock.advance(60_000);
  expect(health.results().repository).toBe("ok");
  await clock.advance(23 * HOUR);
  expect(requested).toBe(1);
  answer = "port-not-reachable";
  await clock.advance(HOUR + 20_000);
  expect(requested).toBe(4);
  expect(messages()).toEqual(["ERROR Repo connectivity failed"]);
  answer = "ok";
  await clock.advance(300_000);
  expect(messages()[1]).toBe("INFO Repo connectivity re-established");
});

test("reports a check that throws, retries it, and changes no result", async () => {
  const ask = (): Promise<ServerAnswer> => Promise.reject(new Error("broken"));
  const { clock, errors, health, messages } = checks({ ask });
  await clock.advance(60_000 + 600_000);
  expect(errors.length).toBe(3);
  expect(health.results().dns).toBeUndefined();
  expect(messages()).toEqual([]);
});

test("closing ends the wait between tries silently", async () => {
  const { clock, answers, errors, health, messages } = checks();
  answers.set("192.0.2.1", "unreachable");
  await clock.advance(65_000);
  health.close();
  await clock.advance(2 * HOUR);
  expect(messages()).toEqual([]);
  expect(errors).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
});
