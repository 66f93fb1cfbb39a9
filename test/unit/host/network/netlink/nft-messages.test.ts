import { describe, expect, it } from "vitest";
import {
  answers,
  eachAttribute,
  eachOfAnswer,
  Get,
  messagesOf,
  request,
} from "../../../../../src/host/network/netlink/nft-messages.ts";

const requested = (get: Get, names: readonly string[] = [], isDump = true): Buffer =>
  request(get, { sequence: 7, isDump, names });

describe("a request", () => {
  it("names its parameters in padded attributes", () => {
    const bytes = requested(Get.element, ["holdfast", "m"]);
    expect(bytes.length % 4).toBe(0);
    const [message, ...more] = messagesOf(bytes);
    expect(more).toEqual([]);
    expect(message).toMatchObject({ type: (10 << 8) | 13, flags: 0x301, sequence: 7 });
    const found: [number, string][] = [];
    if (message !== undefined)
      eachOfAnswer(message, (type, from, to) => found.push([type, message.body.toString("latin1", from, to)]));
    expect(found).toEqual([
      [1, "holdfast\0"],
      [2, "m\0"],
    ]);
  });

  it("is for one object unless it requests all", () => {
    expect([...messagesOf(requested(Get.table, ["t"], false))][0]).toMatchObject({ flags: 1 });
  });

  it("is answered by messages of its kind", () => {
    const [rule] = messagesOf(requested(Get.rule));
    expect(rule).toBeDefined();
    // A new one has the number below that of the query.
    if (rule !== undefined) {
      expect(answers({ ...rule, type: (10 << 8) | 6 }, Get.rule)).toBe(true);
      expect(answers(rule, Get.rule)).toBe(false);
    }
  });
});

describe("invalid bytes", () => {
  it("end the messages", () => {
    const whole = Buffer.concat([requested(Get.chain), requested(Get.set)]);
    expect([...messagesOf(whole)]).toHaveLength(2);
    for (let length = 0; length < whole.length; length += 1) {
      expect([...messagesOf(whole.subarray(0, length))]).toHaveLength(length < whole.length / 2 ? 0 : 1);
    }
    for (const length of [0, 1, 15, 0xffff_ffff]) {
      const bad = Buffer.from(whole);
      bad.writeUInt32LE(length, 0);
      expect([...messagesOf(bad)]).toEqual([]);
    }
  });

  it("end the attributes", () => {
    for (const length of [0, 3, 9, 0xffff]) {
      const bytes = Buffer.alloc(8);
      bytes.writeUInt16LE(length, 0);
      let count = 0;
      eachAttribute(bytes, 0, bytes.length, () => (count += 1));
      expect(count).toBe(0);
    }
    const random = Buffer.from(Array.from({ length: 4096 }, (_, at) => (at * 2_654_435_761) >>> 24));
    for (let from = 0; from < random.length; from += 1) {
      eachAttribute(random, from, random.length, (_, start, end) => {
        expect(start).toBeGreaterThan(from);
        expect(end).toBeLessThanOrEqual(random.length);
      });
    }
  });
});
