import { expect, test } from "vitest";
import { judgeDocuments, type SectionAnswer } from "../../../../src/agent/shadow/applied.ts";
import { DocumentApplied } from "../../../../src/protocol/channel/methods.ts";
import { nodeDocument, UID } from "../../../support/control-plane/signing.ts";

const clean = { shadowed: [], errors: [] };

function heldOf(config: Record<string, object>, refused?: { version: number; at: number }) {
  const common = { version: 4, sub: UID, receivedAt: 1, passedOver: [], body: nodeDocument({ config: { ...config } }) };
  return { node: refused === undefined ? common : { ...common, refused } };
}

test("the issues of a document fit one message, with the number of further ones", () => {
  const sections = ["connectors", "services", "exec"];
  const issues = Array.from({ length: 1000 }, (_, index) => `${index}: ${"ü".repeat(1000)}`);
  const answers = new Map(
    sections.map((name): [string, SectionAnswer] => [name, { state: "failed", issues, steps: 0 }]),
  );
  const desired = heldOf(Object.fromEntries(sections.map((name) => [name, {}])));
  const { node } = judgeDocuments(desired, answers, clean);
  const report = { name: "node", version: 4, at: 1, durationMs: 1, ...node };
  expect(DocumentApplied.safeParse(report).success).toBe(true);
  expect(Buffer.byteLength(JSON.stringify(report))).toBeLessThan(300 * 1024);
  for (const name of sections) {
    const shown = node?.sections[name as "exec"]?.issues ?? [];
    const [more] = shown.slice(-1);
    expect(more).toBe(`and ${1000 - (shown.length - 1)} more`);
  }
});

test("lists few issues completely", () => {
  const answers = new Map<string, SectionAnswer>([["exec", { state: "pending", issues: ["a", "b"], steps: 1 }]]);
  expect(judgeDocuments(heldOf({ exec: {} }), answers, clean).node).toEqual({
    outcome: "partial",
    sections: { exec: { state: "pending", issues: ["a", "b"], steps: 1 } },
  });
});

test("reports a rolled back document as such, whatever the state of the applied one", () => {
  const answers = new Map<string, SectionAnswer>([["exec", { state: "converged", issues: [], steps: 1 }]]);
  const { node } = judgeDocuments(heldOf({ exec: {} }, { version: 5, at: 2 }), answers, clean);
  expect(node).toMatchObject({ outcome: "rolled-back", inForce: 4, sections: { exec: { state: "converged" } } });
});
