import { describe, expect, test } from "vitest";
import { answerCheck, sessionCheck, versionCheck } from "../../../../src/cli/doctor/agent.ts";
import { documentChecks, pendingCheck, sectionChecks } from "../../../../src/cli/doctor/desired.ts";
import { featureChecks, markChecks, tableCheck } from "../../../../src/cli/doctor/kernel.ts";
import {
  clockCheck,
  fileLimitCheck,
  memoryLimitCheck,
  spoolCheck,
  syncCheck,
} from "../../../../src/cli/doctor/machine.ts";
import { networkCheck, serverCheck } from "../../../../src/cli/doctor/network.ts";
import {
  connectorChecks,
  containerChecks,
  gatewayChecks,
  processCheck,
  programCheck,
} from "../../../../src/cli/doctor/overlay.ts";
import type { Check } from "../../../../src/cli/doctor/result.ts";
import { damageCheck, directoryCheck, identityChecks, spaceCheck } from "../../../../src/cli/doctor/state.ts";
import { judgeUnits, parseUnits } from "../../../../src/cli/doctor/units.ts";
import { releaseKeysCheck, standingCheck, versionChecks } from "../../../../src/cli/doctor/upgrade.ts";
import { HostError, SessionError } from "../../../../src/errors.ts";
import type { NetworkFeatures } from "../../../../src/host/network/features.ts";
import { identity, someStatus } from "../../../support/fake-local-provider.ts";

const NOW = 1_800_000_000_000;
const GB = 1e9;
const directory = { kind: "directory", uid: 0, gid: 0, mode: 0o700, sizeBytes: 0 } as const;
const reason = { section: "network", code: "nft-failed", message: "no nft", since: 0, lastAttempt: 0 } as const;
const silent = new SessionError("timeout", "did not answer");
const absent = new SessionError("agent-unreachable", "none", { details: { reason: "ENOENT" } });
const denied = new SessionError("agent-unreachable", "no", { details: { reason: "EACCES" } });
const standing = (rest: object): string =>
  JSON.stringify({ from: "0.1.20260101-0000", begunAt: NOW / 1000 - 60, ...rest });
const path = (state: "up" | "down", id: string) => ({
  id,
  state,
  host: "192.0.2.1",
  port: 443,
  isDefault: true,
  carries: false,
  loss: 0,
  since: 0,
});
const gateway = (...paths: readonly object[]) =>
  gatewayChecks({ gateways: [{ uid: "u", name: "g", fqdn: "g.example", type: "gateway", paths }] } as never);

const cases: readonly (readonly [what: string, check: Check | undefined, expected: string])[] = [
  ["a private state directory", directoryCheck("/s", directory, 0), "pass ok"],
  ["one that is open", directoryCheck("/s", { ...directory, mode: 0o755 }, 0), "fail unsafe-directory"],
  ["another's", directoryCheck("/s", { ...directory, uid: 7 }, 0), "warn other-owner"],
  ["no directory", directoryCheck("/s", { ...directory, kind: "file" }, 0), "fail not-a-directory"],
  ["none", directoryCheck("/s", "absent", 0), "warn state-absent"],
  ["one that may not be seen", directoryCheck("/s", "denied", 7), "skip access-denied"],
  ["room", spaceCheck({ totalBytes: 10 * GB, freeBytes: 5 * GB }), "pass ok"],
  ["little room", spaceCheck({ totalBytes: 10 * GB, freeBytes: GB }), "warn disk-low"],
  ["no room", spaceCheck({ totalBytes: 10 * GB, freeBytes: 0.1 * GB }), "fail disk-full"],
  ["no damage", damageCheck(["state.db", "desired/node.json"]), "pass ok"],
  ["damage", damageCheck(["desired/node.json.damaged"]), "warn damaged-file"],
  ["no identity", identityChecks({ files: [], node: undefined }, "")[0], "warn not-registered"],
  ["a lost one", identityChecks({ files: [{ file: "a", is: "lost" }], node: undefined }, "")[0], "fail state-lost"],
  [
    "one without its keys",
    identityChecks({ files: [{ file: "identity/keys.json", is: "absent" }], node: identity }, "")[0],
    "fail identity-lost",
  ],
  [
    "one with damaged keys",
    identityChecks({ files: [{ file: "identity/keys.json", is: "lost" }], node: identity }, "")[0],
    "fail identity-lost",
  ],
  [
    "a session without keys",
    sessionCheck(
      someStatus({
        session: { state: "stopped", since: 0, attempt: 0, reason: { code: "identity-lost", message: "x" } },
      }),
      NOW,
    ),
    "fail identity-lost",
  ],
  [
    "one from its copy",
    identityChecks({ files: [{ file: "a", is: "recovered" }], node: undefined }, "")[0],
    "warn state-recovered",
  ],
  ["an agent", answerCheck(undefined, 7), "pass ok"],
  ["no agent", answerCheck(absent, undefined), "fail agent-absent"],
  ["one that hangs", answerCheck(silent, 7), "fail agent-silent"],
  ["one that may not be asked", answerCheck(denied, 7), "skip access-denied"],
  ["another version", versionCheck({ version: "1", build: "a" }, { version: "1", build: "b" }), "warn other-version"],
  ["online", sessionCheck(someStatus(), NOW), "pass ok"],
  [
    "offline",
    sessionCheck(
      someStatus({ session: { state: "waiting", since: 0, attempt: 3, reason: { code: "refused", message: "x" } } }),
      NOW,
    ),
    "warn refused",
  ],
  [
    "deleted",
    sessionCheck(
      someStatus({ session: { state: "stopped", since: 0, attempt: 0, reason: { code: "deleted", message: "x" } } }),
      NOW,
    ),
    "fail deleted",
  ],
  ["a document", documentChecks(someStatus(), NOW)[1], "pass ok"],
  ["no document", documentChecks(someStatus({ documents: {} }), NOW)[0], "warn no-document"],
  [
    "one taken back",
    documentChecks(someStatus({ documents: { node: { version: 1, refused: 2 } } }), NOW)[0],
    "warn refused-version",
  ],
  ["one not applied", documentChecks(someStatus({ documents: { node: { version: 1 } } }), NOW)[0], "warn not-applied"],
  ["sections in order", sectionChecks(someStatus(), { schema: 1, reasons: [] })[0], "pass ok"],
  ["a reason", sectionChecks(someStatus(), { schema: 1, reasons: [reason] })[0], "warn nft-failed"],
  ["a notice", sectionChecks(someStatus(), { schema: 1, reasons: [{ ...reason, notice: true }] })[0], "pass ok"],
  [
    "a section without a reason",
    sectionChecks(
      someStatus({ sections: { exec: { state: "failed", issues: [], steps: 0, version: 1 } } }),
      undefined,
    )[0],
    "warn failed",
  ],
  ["no change", pendingCheck(false, undefined), "pass ok"],
  ["a change nobody has", pendingCheck(true, undefined), "warn change-pending"],
  ["what cannot be seen", pendingCheck(undefined, undefined), "skip access-denied"],
  ["an overlay", processCheck({ state: "up", since: 0, pid: 7 }, "live"), "pass ok"],
  ["one that is silent", processCheck({ state: "up", since: 0, reason: "x" }, "live"), "fail overlay-silent"],
  ["one that is down", processCheck({ state: "down", since: 0 }, "stale"), "fail overlay-down"],
  ["one without an agent", processCheck(undefined, "live"), "pass ok"],
  ["one that left its socket", processCheck(undefined, "stale"), "fail overlay-down"],
  ["a replaced program", programCheck("/x/node (deleted)", 7), "warn old-program"],
  ["a connector that listens", connectorChecks({ connectors: [{ id: "a", state: "listening" }] })[0], "pass ok"],
  [
    "one that cannot",
    connectorChecks({
      connectors: [{ id: "a", state: "failed", reason: { code: "address-in-use", message: "x" } }],
    })[0],
    "fail address-in-use",
  ],
  ["one that waits", connectorChecks({ connectors: [{ id: "a", state: "waiting" }] })[0], "warn waiting"],
  ["all paths up", gateway(path("up", "")).at(0), "pass ok"],
  ["one of two down", gateway(path("up", ""), path("down", "b")).at(0), "warn path-down"],
  ["all down", gateway(path("down", "")).at(0), "fail path-down"],
  ["no engine needed", containerChecks({ engine: { state: "unused", since: 0 }, containers: [] })[0], "skip unused"],
  [
    "no engine",
    containerChecks({ engine: { state: "unwell", since: 0 }, containers: [] })[0],
    "fail engine-unavailable",
  ],
  ["no table", tableCheck({ isThere: false }, [], false), "pass ok"],
  ["a table that went", tableCheck({ isThere: false }, ["a"], false), "warn table-gone"],
  ["another's table", tableCheck({ isThere: true, comment: "x", digest: "" }, [], false), "fail foreign-table"],
  [
    "our table",
    tableCheck({ isThere: true, comment: `holdfast:${"a".repeat(64)}`, digest: "" }, ["a".repeat(64)], false),
    "pass ok",
  ],
  [
    "a changed one",
    tableCheck({ isThere: true, comment: `holdfast:${"a".repeat(64)}`, digest: "" }, ["a".repeat(64)], true),
    "warn table-changed",
  ],
  [
    "one of another state",
    tableCheck({ isThere: true, comment: `holdfast:${"a".repeat(64)}`, digest: "" }, [], false),
    "warn table-unknown",
  ],
  ["few descriptors", fileLimitCheck("Max open files            512   512  files", 10), "warn files-few"],
  ["hardly any left", fileLimitCheck("Max open files            1024  1024  files", 1000), "fail files-exhausted"],
  ["enough", fileLimitCheck("Max open files            unlimited  unlimited  files", 1000), "pass ok"],
  ["memory to spare", memoryLimitCheck("max\n", "1000\n", "oom_kill 0\n"), "pass ok"],
  ["memory that is tight", memoryLimitCheck("1000\n", "950\n", "oom_kill 0\n"), "warn memory-tight"],
  ["an end for want of it", memoryLimitCheck("max\n", "1\n", "oom 1\noom_kill 1\n"), "warn memory-killed"],
  ["a clock from before", clockCheck(Date.UTC(2020, 0), "20261121-183000.abc"), "fail clock-before-build"],
  ["a clock", clockCheck(Date.UTC(2027, 0), "20261121-183000.abc"), "pass ok"],
  ["in step", syncCheck("NTPSynchronized=yes\nNTP=yes\n"), "pass ok"],
  ["out of step", syncCheck("NTPSynchronized=no\nNTP=yes\n"), "warn sync-lost"],
  ["a time service that is off", syncCheck("CanNTP=yes\nNTPSynchronized=no\nNTP=no\n"), "warn sync-off"],
  ["no time service", syncCheck("CanNTP=no\nNTPSynchronized=no\nNTP=no\n"), "warn sync-missing"],
  ["nothing lost", spoolCheck({ events: { queued: 3, dropped: 0 } })[0], "pass ok"],
  ["something lost", spoolCheck({ events: { queued: 3, dropped: 1 } })[0], "warn records-lost"],
  [
    "an altered connection",
    networkCheck({ target: "control-plane", name: "x", check: "tls", status: "fail", code: "altered", message: "m" }),
    "fail altered",
  ],
  [
    "a refused gateway",
    networkCheck({ target: "gateway", name: "x", check: "tcp", status: "fail", code: "refused", message: "m" }),
    "warn refused",
  ],
  ["a name server that answers", serverCheck("192.0.2.1", "ok", "x", true, true), "pass ok"],
  ["one of two that does not", serverCheck("192.0.2.1", "unreachable", "x", false, true), "warn unreachable"],
  ["none that does", serverCheck("192.0.2.1", "unreachable", "x", false, false), "fail unreachable"],
  ["no upgrade", standingCheck(undefined, NOW), "skip none"],
  ["an upgrade done", standingCheck(standing({ state: "COMPLETED" }), NOW), "pass ok"],
  [
    "one that failed",
    standingCheck(standing({ state: "FAILED", reason: { code: "bad-signature", message: "x" } }), NOW),
    "warn bad-signature",
  ],
  ["one that hangs", standingCheck(standing({ state: "IN_PROGRESS", begunAt: 1 }), NOW), "warn upgrade-hangs"],
  ["what cannot be read", standingCheck("{", NOW), "warn damaged-file"],
  ["a version given up", versionChecks(["0.2.20270101-0000.failed", "lock"])[0], "warn version-failed"],
  ["bad release keys", releaseKeysCheck("{}"), "fail bad-keys"],
];

test.each(cases)("%s", (_, check, expected) => {
  expect(`${check?.status} ${check?.code}`).toBe(expected);
  // Every problem comes with what to do.
  expect(check?.fix === undefined).toBe(check?.status === "pass" || check?.status === "skip");
});

test("distinguishes a version on trial from one that is temporarily replaced", () => {
  const trial = "0.2.20270101-0000.trial";
  const [[judged], [aside]] = [versionChecks([trial]), versionChecks([trial, "0.2.20270101-0000.aside"])];
  expect([judged?.status, aside?.status]).toEqual(["pass", "pass"]);
  expect(judged?.message).toBe("it is on trial: its guard judges it");
  expect(aside?.message).toContain("the old version is tried in its place");
});

test("reports a missing feature with its consequences", () => {
  const features = {
    reasons: new Map([
      ["nft", "not installed"],
      ["vrf", "no"],
    ]),
  } as unknown as NetworkFeatures;
  expect(featureChecks(features, true).map(({ name, status }) => `${name} ${status}`)).toEqual([
    "feature.vrf skip",
    "feature.nft warn",
  ]);
});

test("reports what carries our mark and is not ours", () => {
  const link = { name: "hf-x", mtu: 1, isUp: true, hasCarrier: true, isOurs: false };
  expect(markChecks({ links: [link, { ...link, name: "eth0" }], routes: [], rules: [] })).toMatchObject([
    { code: "foreign-mark", message: "link hf-x has our mark and is not ours: it is left alone" },
  ]);
});

describe("units", () => {
  const unit = (rest: Record<string, string>): string =>
    Object.entries({
      LoadState: "loaded",
      ActiveState: "active",
      SubState: "running",
      UnitFileState: "enabled",
      Result: "success",
      NRestarts: "0",
      WatchdogUSec: "30s",
      Type: "notify",
      ...rest,
    })
      .map(([name, value]) => `${name}=${value}`)
      .join("\n");
  const judge = (agent: Record<string, string>, restore: Record<string, string> = {}): readonly string[] =>
    judgeUnits(
      parseUnits(
        [
          unit({ Id: "holdfast-agent.service", ...agent }),
          unit({ Id: "holdfast-restore.service", Type: "oneshot", ...restore }),
          unit({ Id: "holdfast-overlay.service", LoadState: "not-found" }),
        ].join("\n\n"),
      ),
    ).map(({ code }) => code);

  test("of a replaced overlay show its successor", () => {
    const successor = "holdfast-overlay@0.1.20260201-0000.service";
    const shown = (overlay: Record<string, string>, next: Record<string, string>): readonly string[] =>
      judgeUnits(
        parseUnits(
          [
            unit({ Id: "holdfast-agent.service" }),
            unit({ Id: "holdfast-restore.service" }),
            unit({ Id: "holdfast-overlay.service", ...overlay }),
            unit({ Id: successor, ...next }),
          ].join("\n\n"),
        ),
      ).flatMap(({ name, code }) => (name.startsWith("holdfast-overlay") ? [`${name} ${code}`] : []));
    const off = { ActiveState: "inactive", SubState: "dead" };
    expect(shown(off, {})).toEqual([`${successor} ok`]);
    expect(shown(off, { ActiveState: "failed" })).toEqual([`${successor} unit-failed`]);
    expect(shown({}, off)).toEqual(["holdfast-overlay.service ok"]);
  });

  test.each([
    ["that are well", {}, ["ok", "ok"]],
    ["that failed", { ActiveState: "failed", Result: "watchdog" }, ["unit-failed", "ok"]],
    ["that do not run", { ActiveState: "inactive", SubState: "dead" }, ["unit-inactive", "ok"]],
    ["that were restarted", { NRestarts: "3" }, ["unit-restarted", "ok"]],
    ["that are not enabled", { UnitFileState: "disabled" }, ["ok", "unit-disabled", "ok"]],
    ["without a watchdog", { WatchdogUSec: "0" }, ["ok", "no-watchdog", "ok"]],
    ["of no install", { LoadState: "not-found" }, ["not-managed"]],
  ])("%s", (_, agent, expected) => {
    expect(judge(agent)).toEqual(expected);
  });

  test("of which one is missing", () => {
    expect(judge({}, { LoadState: "not-found" })).toEqual(["ok", "unit-missing"]);
  });
});

test("an error of the machine is not an answer of the agent", () => {
  expect(answerCheck(new HostError("x", "y"), undefined).code).toBe("agent-unwell");
});
