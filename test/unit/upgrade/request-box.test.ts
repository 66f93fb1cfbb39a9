import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostFiles } from "../../../src/host/files/files.ts";
import { requestBox } from "../../../src/upgrade/request-box.ts";
import { tempDir } from "../../support/temp-dir.ts";

const request = { from: "/m.jws", by: "operator", skipUnattended: true, isForced: false };

function box() {
  const dir = tempDir();
  const requested = join(dir, "asked.json");
  const output: string[] = [];
  const requests = requestBox(hostFiles(), { asked: requested, kept: dir, print: (line) => output.push(line) });
  return {
    dir,
    requested,
    printed: output,
    requests,
    ask: (value: unknown) => writeFileSync(requested, JSON.stringify(value)),
  };
}

test("a request is taken once, and kept until it is done", async () => {
  const { dir, requested, requests, ask } = box();
  expect([await requests.take(), await requests.taken()]).toEqual([false, undefined]);
  ask(request);
  expect([await requests.take(), existsSync(requested), await requests.taken()]).toEqual([true, false, request]);
  expect(await requests.take()).toBe(false);
  await requests.done();
  expect([await requests.taken(), existsSync(join(dir, "request.json"))]).toEqual([undefined, false]);
});

test("a request that was taken and could not be removed is not taken again, and another is", async () => {
  const { dir, requested, requests, ask } = box();
  ask(request);
  writeFileSync(join(dir, "request.json"), readFileSync(requested));
  await requests.settle();
  expect([existsSync(requested), await requests.taken()]).toEqual([false, request]);
  ask({ ...request, from: "/other.jws" });
  await requests.settle();
  expect(existsSync(requested)).toBe(true);
});

test("deletes anything that is not a request", async () => {
  const { dir, requested, printed, requests, ask } = box();
  ask({ from: 5 });
  expect([await requests.take(), existsSync(requested), printed.length]).toEqual([false, false, 1]);
  writeFileSync(join(dir, "request.json"), "{");
  expect([await requests.taken(), existsSync(join(dir, "request.json"))]).toEqual([undefined, false]);
});
