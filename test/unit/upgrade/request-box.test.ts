import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostFiles } from "../../../src/host/files/files.ts";
import { requestBox } from "../../../src/upgrade/request-box.ts";
import { tempDir } from "../../support/temp-dir.ts";

const request = { from: "/m.jws", by: "operator", skipUnattended: true, isForced: false };

function box() {
  const dir = tempDir();
  const asked = join(dir, "asked.json");
  const said: string[] = [];
  const requests = requestBox(hostFiles(), { asked, kept: dir, print: (line) => said.push(line) });
  return { dir, asked, said, requests, ask: (value: unknown) => writeFileSync(asked, JSON.stringify(value)) };
}

test("a request is taken once, and kept until it is done", async () => {
  const { dir, asked, requests, ask } = box();
  expect([await requests.take(), await requests.taken()]).toEqual([false, undefined]);
  ask(request);
  expect([await requests.take(), existsSync(asked), await requests.taken()]).toEqual([true, false, request]);
  expect(await requests.take()).toBe(false);
  await requests.done();
  expect([await requests.taken(), existsSync(join(dir, "request.json"))]).toEqual([undefined, false]);
});

test("a request that was taken and could not be removed is not taken again, and another is", async () => {
  const { dir, asked, requests, ask } = box();
  ask(request);
  writeFileSync(join(dir, "request.json"), readFileSync(asked));
  await requests.settle();
  expect([existsSync(asked), await requests.taken()]).toEqual([false, request]);
  ask({ ...request, from: "/other.jws" });
  await requests.settle();
  expect(existsSync(asked)).toBe(true);
});

test("deletes anything that is not a request", async () => {
  const { dir, asked, said, requests, ask } = box();
  ask({ from: 5 });
  expect([await requests.take(), existsSync(asked), said.length]).toEqual([false, false, 1]);
  writeFileSync(join(dir, "request.json"), "{");
  expect([await requests.taken(), existsSync(join(dir, "request.json"))]).toEqual([undefined, false]);
});
