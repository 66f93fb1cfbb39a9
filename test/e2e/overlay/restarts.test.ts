import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { GAVE_WAY_STATUS, tableHash } from "../../../src/protocol/overlay/overlay.ts";
import { freePort } from "../../support/machine/programs.ts";
import {
  aClient,
  aListener,
  asAgent,
  asBesideAnAgent,
  aServer,
  aTable,
  echo,
  startBuiltOverlay,
  type OverlayProcess,
} from "../../support/overlay/overlay-rig.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const SIZE = 64 * 1024 * 1024;
const CONTENT = randomBytes(1024 * 1024);
const WHOLE = (() => {
  const hash = createHash("sha256");
  for (let sent = 0; sent < SIZE; sent += CONTENT.length) hash.update(CONTENT);
  return hash.digest("hex");
})();

/** A server that sends everybody the same large file. */
function aFileServer(): Promise<number> {
  return aServer((socket) => {
    let left = SIZE;
    const send = (): void => {
      while (left > 0) {
        left -= CONTENT.length;
        if (!socket.write(CONTENT)) return;
      }
      socket.end();
    };
    socket.on("drain", send).resume();
    send();
  });
}

/** A slow download, until released. */
function aDownload(port: number) {
  const client = aClient(port);
  const { socket } = client;
  const hash = createHash("sha256");
  let bytes = 0;
  let isSlow = true;
  socket.removeAllListeners("data");
  socket.on("data", (chunk: Buffer) => {
    hash.update(chunk);
    bytes += chunk.length;
    if (!isSlow) return;
    socket.pause();
    setTimeout(() => socket.resume(), 50);
  });
  return {
    bytes: () => bytes,
    async finish(): Promise<string> {
      isSlow = false;
      socket.resume();
      await waitFor("the download ends", () => client.fate() !== undefined);
      socket.end();
      return client.fate() === "end" ? hash.digest("hex") : (client.fate() ?? "");
    },
  };
}

/** Connects repeatedly until stopped; returns the failures. */
function traffic(port: number) {
  const lost: string[] = [];
  const over = new AbortController();
  let count = 0;
  const loops = Array.from({ length: 4 }, async () => {
    while (!over.signal.aborted) {
      const client = aClient(port);
      client.socket.end("x");
      await waitFor("an end", () => client.fate() !== undefined);
      count += 1;
      if (client.text() !== "x") lost.push(client.fate() ?? "");
    }
  });
  return {
    lost,
    /** Resolves after this number of further connects. */
    more: (wanted: number, from = count) => waitFor("more connects", () => count > from + wanted),
    async stop(): Promise<void> {
      over.abort();
      await Promise.all(loops);
    },
  };
}

async function serving(overlay: OverlayProcess, listeners: readonly (readonly [number, number])[]) {
  const agent = await asAgent(overlay);
  const table = aTable(listeners.map(([port, target]) => aListener(port, target)));
  await agent.peer.request("table.set", { table });
  return { agent, table };
}

it("killed under traffic, the overlay serves its last table at its next start, without the agent", async () => {
  const dir = tempDir();
  const port = await freePort();
  const first = startBuiltOverlay(dir);
  const { agent, table } = await serving(first, [[port, await aServer(echo)]]);
  agent.close();
  const load = traffic(port);
  await load.more(50);
  // From its own bundle, which needs less memory.
  expect(readFileSync(`/proc/${first.child.pid}/cmdline`, "utf8")).toContain("/overlay.mjs\0overlay\0");
  first.child.kill("SIGKILL");
  await first.ended;
  const second = startBuiltOverlay(dir);
  await waitFor("traffic flows again", async () => {
    const client = aClient(port);
    client.socket.end("y");
    await waitFor("an answer", () => client.fate() !== undefined);
    return client.text() === "y";
  });
  await load.more(50);
  await load.stop();
  const again = await asAgent(second);
  expect(await again.peer.request("table.get", {})).toMatchObject({
    version: table.version,
    hash: tableHash(table),
  });
});

it("stopped in the middle of a download, the overlay ends after it and not before", async () => {
  const overlay = startBuiltOverlay(tempDir());
  const port = await freePort();
  await serving(overlay, [[port, await aFileServer()]]);
  const download = aDownload(port);
  await waitFor("it has begun", () => download.bytes() > 0);
  overlay.child.kill("SIGTERM");
  await waitFor("it drains", () => overlay.output().includes("draining"));
  expect(overlay.child.exitCode).toBeNull();
  expect(download.bytes()).toBeLessThan(SIZE);
  expect(await download.finish()).toBe(WHOLE);
  expect(await overlay.ended).toBe(0);
});

it("replaced under traffic, it refuses no connect and a large download arrives completely", async () => {
  asBesideAnAgent();
  const dir = tempDir();
  const [file, small] = [await freePort(), await freePort()];
  const first = startBuiltOverlay(dir);
  await serving(first, [
    [file, await aFileServer()],
    [small, await aServer(echo)],
  ]);
  const download = aDownload(file);
  const load = traffic(small);
  await waitFor("it has begun", () => download.bytes() > 0);
  const second = startBuiltOverlay(dir, ["--successor"]);
  await waitFor("the successor serves", () => second.output().includes("took over"));
  await load.more(50);
  await load.stop();
  expect(load.lost).toEqual([]);
  expect(first.child.exitCode).toBeNull();
  expect(download.bytes()).toBeLessThan(SIZE);
  expect(await download.finish()).toBe(WHOLE);
  expect(await first.ended).toBe(GAVE_WAY_STATUS);
  const third = startBuiltOverlay(dir, ["--successor"]);
  await waitFor("and so does the next one", () => third.output().includes("took over"));
  expect(await second.ended).toBe(GAVE_WAY_STATUS);
});
