import { describe, expect, it } from "vitest";
import { meets, ownSockets } from "../../../../src/overlay/dial/own-sockets.ts";

const LOCAL = ["192.0.2.10", "2001:db8::10"];

describe("meets", () => {
  it.each([
    ["127.0.0.1", ["127.0.0.1"], true],
    ["127.0.0.1", ["0.0.0.0"], true],
    ["127.0.0.5", ["0.0.0.0"], true],
    ["127.0.0.5", ["127.0.0.1"], false],
    ["0.0.0.0", ["127.0.0.1"], true],
    ["0.0.0.0", ["127.0.0.5"], false],
    ["0.0.0.0", ["0.0.0.0"], true],
    ["192.0.2.10", ["0.0.0.0"], true],
    ["192.0.2.10", ["192.0.2.10"], true],
    ["192.0.2.10", ["127.0.0.1"], false],
    ["192.0.2.99", ["0.0.0.0"], false],
    ["::1", ["::"], true],
    ["::1", ["0.0.0.0"], false],
    ["::", ["::1"], true],
    ["::ffff:127.0.0.1", ["127.0.0.1"], true],
    ["2001:0db8:0:0::10", ["2001:db8::10"], true],
    ["2001:db8::10", ["::"], true],
    ["2001:db8::11", ["::"], false],
  ])("%s and a socket on %j: %s", (target, bound, isLoop) => {
    expect(meets(target, bound, () => LOCAL)).toBe(isLoop);
  });
});

describe("ownSockets", () => {
  it("distinguishes ports and protocols and counts each socket once", () => {
    const own = ownSockets(() => LOCAL);
    own.add("tcp", "0.0.0.0", 80);
    own.add("tcp", "0.0.0.0", 80);
    own.add("udp", "127.0.0.1", 53);
    expect(own.size).toBe(2);
    expect(own.leadsHere("tcp", "127.0.0.1", 80)).toBe(true);
    expect(own.leadsHere("udp", "127.0.0.1", 80)).toBe(false);
    expect(own.leadsHere("tcp", "127.0.0.1", 81)).toBe(false);
    own.remove("tcp", "0.0.0.0", 80);
    own.remove("tcp", "0.0.0.0", 80);
    expect(own.leadsHere("tcp", "127.0.0.1", 80)).toBe(false);
    expect(own.list()).toEqual([{ protocol: "udp", address: "127.0.0.1", port: 53 }]);
    expect(own.size).toBe(1);
  });
});
