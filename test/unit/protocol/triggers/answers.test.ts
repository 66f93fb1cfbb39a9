import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ContainerCommandAnswer, WatchedOutput, WholeOutput } from "../../../../src/protocol/triggers/results.ts";
import { triggerSchemas } from "../../../../src/protocol/triggers/schemas.ts";

/**
 * Form of an answer: `own` has members of its own, `tool` is the output of a tool, `output` and `result` have one wrapper of that name,
 * and `none` is not answered as an event.
 */
type Form = "own" | "tool" | "output" | "result" | "none";

/** Each event with its form, and the section of the platform's documents on triggers that has it; "ours" for events of our own. */
const FORMS: readonly (readonly [string, Form, string])[] = [
  ["config-show", "own", "ours"],
  ["container-exec", "none", "A3.15"],
  ["container-image", "own", "A1.3, A3.15"],
  ["container-logs", "tool", "A3.15"],
  ["container-status", "own", "A1.3, A3.15"],
  ["datastore-manager", "own", "A1.3, A2.15"],
  ["dns-health", "own", "A4.6"],
  ["errors", "own", "A4.3"],
  ["flows", "result", "A1.3, A2.11"],
  ["gateway-latency", "own", "A4.7"],
  ["gateway-mtr", "tool", "A4.10"],
  ["gateway-perf", "tool", "A1.3, A3.3"],
  ["gateway-ping", "tool", "A1.3, A3.2"],
  ["gateway-routes", "output", "A1.3, A2.4"],
  ["gateway-traceroute", "tool", "A4.10"],
  ["nat-hits", "own", "A1.3, A3.4"],
  ["network-keep", "own", "ours"],
  ["network-revert", "own", "ours"],
  ["network-status", "own", "A4.2"],
  ["node-debug", "tool", "A1.3, A3.5"],
  ["node-push-logs", "own", "A4.13"],
  ["node-reboot", "output", "A1.3, A2.2"],
  ["node-restart-service", "output", "A1.3, A2.1"],
  ["node-upgrade", "output", "A1.3, A2.3"],
  ["outbound-connection-check", "own", "A4.4"],
  ["plan", "own", "ours"],
  ["repo-connectivity", "own", "A4.5"],
  ["rollback", "own", "ours"],
  ["speed-test", "tool", "A1.3, A2.10"],
  ["status", "own", "A4.1"],
  ["tg-arping", "tool", "A1.3, A3.6"],
  ["tg-capture", "own", "A4.9"],
  ["tg-mtr", "tool", "A1.3, A3.7"],
  ["tg-nc", "output", "A1.3, A3.8"],
  ["tg-ping", "tool", "A1.3, A2.7"],
  ["tg-tcpdump", "tool", "A1.3, A3.10"],
  ["tg-traceroute", "tool", "A1.3, A2.8"],
  ["why", "own", "ours"],
];
const WRAPPERS = ["output", "result"] as const;

/** Returns the alternatives of a schema, those of nested unions included. */
function alternatives(schema: z.core.$ZodType): readonly z.core.$ZodType[] {
  return schema instanceof z.ZodUnion ? schema.options.flatMap(alternatives) : [schema];
}

const membersOf = (schema: z.core.$ZodType): readonly string[] =>
  schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];

function formOf(schema: z.core.$ZodType): Form {
  if (schema instanceof z.ZodNever) return "none";
  const all = alternatives(schema);
  if (all.length === 2 && all[0] === WholeOutput && all[1] === WatchedOutput) return "tool";
  return WRAPPERS.find((name) => all.every((one) => membersOf(one).includes(name))) ?? "own";
}

describe("the answer of each event", () => {
  it("is in the table", () => {
    expect(FORMS.map(([event]) => event)).toEqual(Object.keys(triggerSchemas).sort());
  });

  it.each(FORMS)("%s has the form '%s' (%s)", (event, form, where) => {
    const schema = z
      .object({ result: z.instanceof(z.ZodType) })
      .parse(new Map(Object.entries(triggerSchemas)).get(event)).result;
    expect(formOf(schema)).toBe(form);
    const isWrapped = form === "output" || form === "result";
    // A wrapper is only where the platform documents it, alone in its answer but for counts, and in every alternative.
    expect(isWrapped && !where.startsWith("A1.3")).toBe(false);
    const members = alternatives(schema).flatMap(membersOf);
    if (form === "own") for (const name of WRAPPERS) expect(members).not.toContain(name);
    if (form === "output") expect(members).toEqual(["output"]);
    // A failure is an error with a code; only a deletion of an image that is refused is documented as an answer.
    expect(members.includes("error")).toBe(["container-image", "outbound-connection-check"].includes(event));
  });

  it("is a message for the command of a container, and its output if a start is watched", () => {
    const [done, ...output] = alternatives(ContainerCommandAnswer);
    expect(done === undefined ? [] : membersOf(done)).toEqual(["message"]);
    expect(output).toEqual([WholeOutput, WatchedOutput]);
  });

  it("of a list of flows has every protocol and the platform's names", () => {
    const { result } = triggerSchemas.flows;
    const flow = { sip: "192.0.2.1", dip: "192.0.2.2", p: "tcp", sport: 1, dport: 2, state: "ESTABLISHED", def: false };
    const list = { icmp: [], tcp: [flow], udp: [] };
    expect(result.safeParse({ result: list, total: 1 }).success).toBe(true);
    expect(result.safeParse({ result: { tcp: [flow] }, total: 1 }).success).toBe(false);
    expect(result.safeParse({ result: { ...list, tcp: [{ source: "192.0.2.1:1" }] }, total: 1 }).success).toBe(false);
  });
});
