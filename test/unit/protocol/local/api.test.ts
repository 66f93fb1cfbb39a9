import { describe, expect, it } from "vitest";
import { Health, Status, TriggerLine } from "../../../../src/protocol/local/answers.ts";
import { LogsQuery, socketPath } from "../../../../src/protocol/local/api.ts";
import { someStatus } from "../../../support/fake-local-provider.ts";

describe("socket paths", () => {
  it("fit the kernel or are refused with what to do", () => {
    expect(socketPath("/run/holdfast/", "agent.sock")).toBe("/run/holdfast/agent.sock");
    expect(socketPath("/", "agent.sock")).toBe("/agent.sock");
    const longest = `/${"r".repeat(107 - "//agent.sock".length)}`;
    expect(Buffer.byteLength(socketPath(longest, "agent.sock"))).toBe(107);
    expect(() => socketPath(`${longest}r`, "agent.sock")).toThrow(/108 bytes.*at most 107.*shorter run directory/);
    expect(() => socketPath(`/${"ü".repeat(50)}`, "agent.sock")).toThrow(/112 bytes/);
  });
});

describe("schemas", () => {
  it("accept a complete status and ignore what a newer agent adds", () => {
    const status = someStatus();
    expect(Status.parse({ ...status, later: { invented: true } })).toEqual(status);
    expect(Status.parse({ ...status, node: null }).node).toBeNull();
    const sections = { invented: { state: "converged", issues: [], steps: 1, version: 2 } };
    expect(Status.parse({ ...status, sections }).sections).toEqual(sections);
    expect(Status.parse({ ...status, engines: { network: "poll", firewall: "nftables" } }).engines).toEqual({
      network: "poll",
      firewall: "nftables",
    });
  });

  it.each([
    ["schema", { schema: 2 }],
    ["node", { node: undefined }],
    ["session.state", { session: { state: "asleep", since: 0, attempt: 0 } }],
    ["documents.other", { documents: { other: { version: 1 } } }],
    ["faults", { faults: Array.from({ length: 257 }, () => ({ code: "x", message: "y", since: 0 })) }],
  ])("refuse a wrong %s", (path, change) => {
    const parsed = Status.safeParse({ ...someStatus(), ...change });
    expect(parsed.success).toBe(false);
    const paths = parsed.error?.issues.map((issue) =>
      [...issue.path, ...("keys" in issue ? issue.keys : [])].join("."),
    );
    expect(paths).toContain(path);
  });

  it("parse the query of logs", () => {
    expect(LogsQuery.parse({})).toEqual({ lines: 100, follow: false });
    expect(LogsQuery.parse({ lines: "0", follow: "true" })).toEqual({ lines: 0, follow: true });
    for (const query of [{ lines: "-1" }, { lines: "1e3" }, { lines: "10001" }, { follow: "yes" }]) {
      expect(LogsQuery.safeParse(query).success).toBe(false);
    }
  });

  it("distinguish the lines of a trigger", () => {
    expect(TriggerLine.safeParse({ kind: "progress", seq: 0, channel: "stdout", data: "x" }).success).toBe(true);
    expect(TriggerLine.safeParse({ kind: "error", code: "busy", message: "m" }).success).toBe(true);
    expect(TriggerLine.safeParse({ kind: "error", code: "busy" }).success).toBe(false);
    expect(TriggerLine.safeParse({ kind: "done" }).success).toBe(false);
    expect(Health.safeParse({ schema: 1, verdict: "fine", items: [] }).success).toBe(false);
  });
});
