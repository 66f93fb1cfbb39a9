import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { CapsuleReader, datagramCapsule } from "../../../../src/overlay/flow/capsules.ts";

function reading(): { readonly reader: CapsuleReader; readonly datagrams: Buffer[] } {
  const datagrams: Buffer[] = [];
  return { datagrams, reader: new CapsuleReader((datagram) => datagrams.push(Buffer.from(datagram))) };
}

describe("a datagram capsule", () => {
  it("is encoded as in the standard", () => {
    expect(datagramCapsule(Buffer.from("hi")).toString("hex")).toBe("0003006869");
    expect(datagramCapsule(Buffer.alloc(0)).toString("hex")).toBe("000100");
    expect(datagramCapsule(Buffer.alloc(62)).subarray(0, 3).toString("hex")).toBe("003f00");
    expect(datagramCapsule(Buffer.alloc(63)).subarray(0, 4).toString("hex")).toBe("00404000");
    expect(datagramCapsule(Buffer.alloc(16_383)).subarray(0, 6).toString("hex")).toBe("008000400000");
  });

  it.each([0, 1, 62, 63, 64, 1200, 16_382, 16_383, 65_507])(
    "of %d bytes is decoded, whole and byte by byte",
    (size) => {
      const datagram = randomBytes(size);
      const capsule = Buffer.concat([datagramCapsule(datagram), datagramCapsule(Buffer.from("next"))]);
      for (const step of [capsule.length, 1, 7]) {
        if (step < 7 && size > 5000) continue;
        const { reader, datagrams } = reading();
        for (let at = 0; at < capsule.length; at += step) reader.push(capsule.subarray(at, at + step));
        reader.end();
        expect(datagrams).toEqual([datagram, Buffer.from("next")]);
      }
    },
  );

  it("is decoded if long and in very small pieces", () => {
    const datagram = randomBytes(65_000);
    const capsule = datagramCapsule(datagram);
    const { reader, datagrams } = reading();
    for (let at = 0; at < capsule.length; at += 1) reader.push(capsule.subarray(at, at + 1));
    expect(datagrams[0]?.equals(datagram)).toBe(true);
  });

  it("is decoded with integers longer than necessary", () => {
    const { reader, datagrams } = reading();
    reader.push(Buffer.from("c00000000000000080000003400061", "hex"));
    expect(datagrams).toEqual([Buffer.from("a")]);
  });
});

describe("other capsules", () => {
  it("are skipped, and so are other contexts", () => {
    const { reader, datagrams } = reading();
    reader.push(Buffer.from("1702ffff000201617fff00", "hex"));
    reader.push(datagramCapsule(Buffer.from("mine")));
    reader.end();
    expect(datagrams).toEqual([Buffer.from("mine")]);
  });

  it.each([
    ["capsule-too-long", "0080020000"],
    ["capsule-too-long", "00ffffffffffffffff"],
    ["datagram-without-context", "0000"],
    ["datagram-without-context", "000140"],
  ])("that are invalid are refused as %s", (code, hex) => {
    expect(() => reading().reader.push(Buffer.from(hex, "hex"))).toThrow(code);
  });

  it.each(["00", "0005", "00050061", "40"])("that are cut off by the end of the stream are refused: %s", (hex) => {
    const { reader } = reading();
    reader.push(Buffer.from(hex, "hex"));
    expect(() => reader.end()).toThrow("capsule-cut");
  });
});
