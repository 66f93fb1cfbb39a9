import { expect, test } from "vitest";
import { ReplyCollector, ReplyPart, replyParts } from "../../../../src/protocol/channel/reply-parts.ts";

const put = (text: string): unknown => {
  const collector = new ReplyCollector();
  for (const part of replyParts(text)) expect(collector.take(ReplyPart.parse(part))).toBe(true);
  return collector.whole({ replyBytes: Buffer.byteLength(text) });
};

test.each([0, 1, 2])("joins a text split at any character, moved by %i", (moved) => {
  const value = { files: [`${"x".repeat(moved)}${"😀".repeat(40_000)}`] };
  const parts = [...replyParts(JSON.stringify(value))];
  expect(parts.length).toBeGreaterThan(4);
  for (const { replyPart } of parts) expect(replyPart).not.toMatch(/\p{Surrogate}/u);
  expect(put(JSON.stringify(value))).toEqual(value);
});

test("leaves a complete answer alone, and ignores other output", () => {
  const collector = new ReplyCollector();
  expect(collector.take({ percent: 3 })).toBe(false);
  expect(collector.take({ replyPart: "a", more: 1 })).toBe(false);
  expect(collector.whole({ files: [] })).toEqual({ files: [] });
});

test("reports missing parts, too many of them and invalid JSON", () => {
  const collector = new ReplyCollector();
  collector.take({ replyPart: "{}" });
  expect(() => collector.whole({ replyBytes: 3 })).toThrow(expect.objectContaining({ code: "interrupted" }));
  collector.take({ replyPart: "}" });
  expect(() => collector.whole({ replyBytes: 3 })).toThrow(expect.objectContaining({ code: "invalid-json" }));
  const endless = (): void => {
    for (let at = 0; at < 1100; at += 1) collector.take({ replyPart: "x".repeat(16_384) });
  };
  expect(endless).toThrow(expect.objectContaining({ code: "too-large" }));
});
