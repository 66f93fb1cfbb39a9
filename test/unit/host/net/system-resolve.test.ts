import { expect, test } from "vitest";
import { resolveSet, systemResolve } from "../../../../src/host/net/system-resolve.ts";
import { deferred } from "../../../support/deferred.ts";

function hanging() {
  const requested: { readonly host: string; readonly answer: ReturnType<typeof deferred<readonly string[]>> }[] = [];
  const resolve = systemResolve((host) => {
    const answer = deferred<readonly string[]>();
    requested.push({ host, answer });
    return answer.promise;
  });
  return { requested, resolve };
}

test("returns the addresses of a name", async () => {
  expect(await systemResolve()("localhost")).toContain("127.0.0.1");
  await expect(systemResolve()(`${"a".repeat(64)}.invalid`)).rejects.toThrow(/invalid/);
});

test("at most two lookups of a name hang, and later ones get the answer of the newer", async () => {
  const { requested, resolve } = hanging();
  const first = resolve("a.example");
  const others = Array.from({ length: 20 }, () => resolve("a.example"));
  void resolve("b.example");
  expect(requested.map(({ host }) => host)).toEqual(["a.example", "a.example", "b.example"]);
  requested[1]?.answer.resolve(["192.0.2.2"]);
  expect(await Promise.all(others)).toEqual(others.map(() => ["192.0.2.2"]));
  requested[0]?.answer.resolve(["192.0.2.1"]);
  expect(await first).toEqual(["192.0.2.1"]);
});

test("an ended lookup makes room for another, also when it failed", async () => {
  const { requested, resolve } = hanging();
  const [first, second] = [resolve("a.example"), resolve("a.example")];
  requested[0]?.answer.reject(new Error("timed out"));
  await expect(first).rejects.toThrow("timed out");
  void resolve("a.example");
  expect(requested).toHaveLength(3);
  requested[1]?.answer.resolve(["192.0.2.2"]);
  await second;
  void resolve("a.example");
  expect(requested).toHaveLength(4);
});

test("does not look up a name with configured addresses", async () => {
  const requested: string[] = [];
  const resolve = resolveSet({ "cp.example": ["192.0.2.7"] }, (host) => {
    requested.push(host);
    return Promise.resolve(["198.51.100.1"]);
  });
  expect(await resolve("CP.example")).toEqual(["192.0.2.7"]);
  expect(await resolve("other.example")).toEqual(["198.51.100.1"]);
  expect(await resolve("constructor")).toEqual(["198.51.100.1"]);
  expect(requested).toEqual(["other.example", "constructor"]);
});
