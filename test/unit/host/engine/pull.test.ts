import { expect, test } from "vitest";
import { authHeader } from "../../../../src/host/engine/pull.ts";

test("a credential keeps its padding, without which the engine takes it for none", () => {
  for (const password of ["p", "pp", "ppp", "ÿ>?"]) {
    const header = authHeader({ username: "u", password, server: "r:5000" });
    expect(header).toMatch(/^[A-Za-z0-9_-]+={0,2}$/);
    expect(header.length % 4).toBe(0);
    const parsed: unknown = JSON.parse(Buffer.from(header, "base64url").toString("utf8"));
    expect(parsed).toEqual({ username: "u", password, serveraddress: "r:5000" });
  }
});
