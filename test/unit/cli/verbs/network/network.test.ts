import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { networkVerb } from "../../../../../src/cli/verbs/network/network.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { CommitReport, type PendingChange, type RolledBackChange } from "../../../../../src/protocol/local/commit.ts";
import { someCall } from "../../../../support/fake-call.ts";
import { startLocalAgent } from "../../../../support/local-agent.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

/** `FILE` is replaced by a file with this text. */
interface Case {
  readonly words: readonly string[];
  readonly text?: string;
  readonly minutes?: string;
  readonly code?: string;
  readonly says: string;
}

test.each<[what: string, Case]>([
  ["another action", { words: ["apply"], says: "not 'apply'" }],
  ["show with an argument", { words: ["show", "x"], says: "network show takes no argument" }],
  ["keep with an argument", { words: ["keep", "x"], says: "network keep takes no argument" }],
  ["revert with an argument", { words: ["revert", "x"], says: "network revert takes no argument" }],
  ["try without a file", { words: ["try"], says: "needs a file" }],
  [
    "minutes that nobody offers",
    { words: ["try", "FILE"], text: "{}", minutes: "20", says: "--minutes takes 10, 30, 60" },
  ],
  ["minutes in other figures", { words: ["try", "FILE"], text: "{}", minutes: "1e1", says: "--minutes takes" }],
  ["no minutes", { words: ["try", "FILE"], text: "{}", minutes: "", says: "--minutes takes" }],
  ["no such file", { words: ["try", "FILE"], code: "not-found", says: "does not exist" }],
  ["no JSON", { words: ["try", "FILE"], text: "interfaces: []", says: "cannot be read" }],
  ["a list", { words: ["try", "FILE"], text: "[]", says: "holds no object" }],
  ["a network that is none", { words: ["try", "FILE"], text: '{"network":7}', says: "network is no object" }],
  [
    "a document whose network is none",
    { words: ["try", "FILE"], text: '{"config":{"network":[]}}', says: "network is no object" },
  ],
])("refuses %s before any request", async (_what, { words, text, minutes, code = "usage", says }) => {
  const dir = tempDir();
  const file = join(dir, "FILE");
  if (text !== undefined) writeFileSync(file, text);
  const dirs = { root: dir, stateDir: dir, runDir: dir, [Symbol.asyncDispose]: () => Promise.resolve() };
  const positionals = words.map((word) => (word === "FILE" ? file : word));
  const { call } = someCall(dirs, { positionals, values: minutes === undefined ? {} : { minutes } });
  const error: unknown = await networkVerb.run(call).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code });
  expect(String(error)).toContain(says);
});

const NOW = Date.UTC(2026, 0, 2, 12, 0, 0);
const clock = { ...systemClock(), now: () => NOW };
const pending: PendingChange = {
  mode: "save",
  state: "proving",
  since: NOW - 20_000,
  deadline: NOW + 100_000,
  secondsLeft: 100,
  versions: { node: 7 },
  isLocal: false,
  before: { session: true, gateways: 2 },
  unreached: ["control plane 192.0.2.1:443: connection timed out"],
};
const lastTakenBack: RolledBackChange = {
  at: NOW - 60_000,
  by: "agent",
  code: "not-proven",
  evidence: "control plane 192.0.2.1:443: connection timed out",
  mode: "save",
  isLocal: false,
  versions: { node: 6 },
  is: "refused",
  failed: [],
};

/** Returns the verb's output for a report, over the agent's own socket. */
async function shown(report: CommitReport, words: readonly string[], isJson = false) {
  await using agent = await startLocalAgent();
  agent.provider.networkNow = report;
  const { call, shown } = someCall(agent, { positionals: words, clock });
  const terminal = { ...call.terminal, size: () => ({ columns: 200, rows: 24 }) };
  const exit = await networkVerb.run({ ...call, terminal, settings: { ...call.settings, isJson } });
  return { exit, text: shown.join(""), requested: agent.provider.requested };
}

test.each<[what: string, report: CommitReport, lines: readonly string[]]>([
  ["nothing", { schema: 1 }, ["pending  nothing"]],
  [
    "a change that is being proven",
    { schema: 1, pending },
    [
      "pending      change is being proven, 1 min left before it is reverted",
      "what         node 7; must reach the control plane and one of 2 gateways again",
      "not reached  control plane 192.0.2.1:443: connection timed out",
    ],
  ],
  [
    "a trial on the machine, without a session before it",
    {
      schema: 1,
      pending: {
        ...pending,
        mode: "try",
        state: "awaiting-keep",
        isLocal: true,
        before: { session: false, gateways: 0 },
        unreached: [],
      },
    },
    [
      "pending  trial is proven, 1 min left: 'holdfast network keep' keeps it",
      "what     of this machine; there was no session: only keeping it, or a session, confirms",
    ],
  ],
  [
    "one that was taken back, and what is kept",
    {
      schema: 1,
      kept: { since: NOW - 3000 },
      lastTakenBack: {
        ...lastTakenBack,
        step: { kind: "ip", subject: "route add default" },
        failed: ["network: ip: No buffer space available"],
      },
    },
    [
      "pending         nothing",
      "kept            3 s ago: confirmed on this machine; applies until a restart or until the control plane changes the network",
      "reverted        60 s ago by the agent: node 6, not tried again until it is changed",
      "  why           not-proven control plane 192.0.2.1:443: connection timed out",
      "  step          ip route add default",
      "  not restored  network: ip: No buffer space available",
    ],
  ],
])("network shows %s", async (_what, report, lines) => {
  const { exit, text } = await shown(report, ["show"]);
  expect([exit, text.trimEnd().split("\n")]).toEqual(["ok", lines]);
});

test("network --json prints the complete answer", async () => {
  const report: CommitReport = { schema: 1, pending, lastTakenBack };
  const { text } = await shown(report, [], true);
  expect(CommitReport.parse(JSON.parse(text))).toEqual(report);
});

test.each([
  ["keep", "network keep"],
  ["revert", "network revert"],
])("network %s requests it from the agent and prints the result", async (action, requested) => {
  const { exit, text, requested: received } = await shown({ schema: 1 }, [action]);
  expect([exit, text, received]).toEqual(["ok", "pending  nothing\n", [requested]]);
});

test("network try sends the section, and fails when it was rolled back at once", async () => {
  const file = join(tempDir(), "network.json");
  writeFileSync(file, '{"network":{"interfaces":[]}}');
  const tried = await shown({ schema: 1, pending: { ...pending, mode: "try", isLocal: true } }, ["try", file]);
  expect(tried).toMatchObject({ exit: "ok", requested: ["network try 10"] });
  expect(tried.text).toContain("trial is being proven");
  const before = await shown({ schema: 1, lastTakenBack }, ["try", file]);
  expect(before.exit).toBe("ok");
  const fresh = await shown({ schema: 1, lastTakenBack: { ...lastTakenBack, at: NOW, is: "over" } }, ["try", file]);
  expect(fresh.exit).toBe("failed");
  expect(fresh.text).toContain("node 6, something else is in force since");
});
