import { describe, expect, it } from "vitest";
import { announcedPort, passiveReply } from "../../../../src/overlay/ftp/passive.ts";

describe("a reply that announces a data port", () => {
  it.each(["10.0.0.1", "255.255.255.255"])("is written so that it can be parsed again, for %s", (address) => {
    for (const port of [1024, 1280, 40_000, 65_535]) {
      for (const passive of ["PASV", "EPSV"] as const) {
        expect(announcedPort(passive, passiveReply(passive, address, port) ?? "")).toBe(port);
      }
    }
  });

  it("cannot name an IPv6 address in the old form, and need not in the new one", () => {
    expect(passiveReply("PASV", "fe80::1", 5000)).toBeUndefined();
    expect(passiveReply("EPSV", "fe80::1", 5000)).toContain("(|||5000|)");
  });

  it("is parsed in linear time", () => {
    for (const filler of ["1,", "9999,", "1,2,3,4,5,,", "(|||", "(((("]) {
      const line = filler.repeat(Math.floor(8000 / filler.length));
      expect(announcedPort("PASV", `227 ${line}x`)).toBeUndefined();
      expect(announcedPort("EPSV", `229 ${line}x`)).toBeUndefined();
    }
  });
});
