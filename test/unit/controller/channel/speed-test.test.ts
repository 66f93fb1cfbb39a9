import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { nonce } from "../../../support/control-plane/node-client.ts";
import { addNode, runController, temporaryDirectory } from "../../../support/control-plane/running-controller.ts";
import { waitFor } from "../../../support/wait-for.ts";

async function speedTestUrl(dataDir?: string): Promise<string> {
  const controller = await runController(dataDir === undefined ? {} : { dataDir });
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const { body } = peekClaims("holdfast-document+jwt", (await session.fetchDocument(controller.url, "node")) ?? "");
  const { speedTestUrl: url } = z.object({ speedTestUrl: z.string() }).parse(body["settings"]);
  expect(url).toMatch(new RegExp(`^${controller.url}/agent/v1/speedtest/${node.uid}\\.[A-Za-z0-9_-]{43}$`));
  return url;
}

test("the token is nowhere in the database, and no other is taken", async () => {
  const dataDir = await temporaryDirectory();
  const url = await speedTestUrl(dataDir);
  const [uid = "", mac = ""] = url.slice(url.lastIndexOf("/") + 1).split(".");
  for (const name of ["controller.db", "controller.db-wal"]) {
    const text = await readFile(join(dataDir, name), "latin1");
    for (const hidden of [mac, ...[0, 1, 2].map((shift) => encodedAt(mac, shift))]) expect(text).not.toContain(hidden);
  }
  const base = url.slice(0, url.lastIndexOf("/"));
  const other = crypto.randomUUID();
  for (const token of [
    uid,
    `${uid}.`,
    `${uid}.${nonce()}`,
    `${other}.${mac}`,
    `${uid}.${mac}x`,
    uid.concat(".", mac, "."),
  ]) {
    expect((await fetch(`${base}/${token}?bytes=1`)).status, token).toBe(404);
  }
});

/** Returns the part of a text that is the same in every base64url text that holds it so many bytes after a multiple of three. */
function encodedAt(text: string, shift: number): string {
  return Buffer.from(" ".repeat(shift) + text)
    .toString("base64url")
    .slice(4, -4);
}

test("bytes come down and go up as many as asked", async () => {
  const url = await speedTestUrl();
  const down = await fetch(`${url}?bytes=1000001`);
  expect((await down.arrayBuffer()).byteLength).toBe(1_000_001);
  const up = await fetch(url, { method: "POST", body: new Uint8Array(300_000) });
  expect(await up.json()).toEqual({ bytes: 300_000 });
});

test.each(["", "?bytes=0", "?bytes=100000001", "?bytes=-1", "?bytes=1e3", "?bytes=x"])(
  "%s is refused",
  async (query) => {
    const url = await speedTestUrl();
    expect((await fetch(url + query)).status).toBe(422);
  },
);

test("only the node's own address works", async () => {
  const url = await speedTestUrl();
  expect((await fetch(url.replace(/[^/]+$/, nonce()))).status).toBe(404);
  expect((await fetch(url.replace(/[^/]+$/, ""))).status).toBe(404);
  expect((await fetch(url, { method: "PUT", body: "x" })).status).toBe(405);
});

test("four connections of a node measure at a time", async () => {
  const url = await speedTestUrl();
  const abort = new AbortController();
  const running = await Promise.all(
    Array.from({ length: 4 }, () => fetch(`${url}?bytes=100000000`, { signal: abort.signal })),
  );
  expect(running.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect((await fetch(`${url}?bytes=1`)).status).toBe(429);
  abort.abort();
  await waitFor("there is room again", async () => (await fetch(`${url}?bytes=1`)).status === 200);
});
