import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  GAVE_WAY_STATUS,
  OVERLAY_FORMAT,
  tableHash,
  type OverlayFlow,
  type OverlayTable,
} from "../../../src/protocol/overlay/overlay.ts";
import { freePort } from "../../support/machine/programs.ts";
import {
  aClient,
  aListener,
  asAgent,
  aServer,
  aService,
  asBesideAnAgent,
  aTable,
  echo,
  startOverlayProcess,
  type Client,
} from "../../support/overlay/overlay-rig.ts";
import { TESTS_ALL } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

async function echoes(client: Client, text: string): Promise<void> {
  const before = client.text().length;
  client.socket.write(text);
  await waitFor("the echo", () => client.text().length >= before + text.length || client.fate() !== undefined);
  expect(client.text().slice(before)).toBe(text);
}

describe("the overlay process", () => {
  it("accepts a table, serves it without the agent, and again after kill -9", async () => {
    const dir = tempDir();
    const port = await freePort();
    const table = aTable([aListener(port, await aServer(echo))]);
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    expect(await agent.peer.request("table.get", {})).toEqual({ version: 0, hash: "", listeners: [], services: [] });
    const set = await agent.peer.request("table.set", { table });
    expect(set).toMatchObject({ version: table.version, hash: tableHash(table), listeners: [{ state: "listening" }] });
    expect(statSync(join(first.runDir, "overlay.sock")).mode & 0o777).toBe(0o660);
    expect(Number(readFileSync(join(first.runDir, "overlay.pid"), "utf8"))).toBe(first.pid);
    agent.close();
    await echoes(aClient(port), "alone");
    first.child.kill("SIGKILL");
    await first.ended;

    const second = startOverlayProcess(dir);
    const again = await asAgent(second);
    await waitFor("the last table", async () => (await again.peer.request("table.get", {})).hash === tableHash(table));
    await echoes(aClient(port), "again");
    second.child.kill("SIGINT");
    await waitFor("it drains", () => second.output().includes("draining"));
    second.child.kill("SIGINT");
    expect(await second.ended).toBe(0);
    expect(existsSync(join(first.runDir, "overlay.sock"))).toBe(false);
    expect(existsSync(join(first.runDir, "overlay.pid"))).toBe(false);
  });

  it("survives its terminal, and lets flows end when it is interrupted", async () => {
    const overlay = startOverlayProcess(tempDir());
    const port = await freePort();
    const agent = await asAgent(overlay);
    await agent.peer.request("table.set", { table: aTable([aListener(port, await aServer(echo))]) });
    const flow = aClient(port);
    await echoes(flow, "before");
    overlay.child.kill("SIGHUP");
    await waitFor("it reports it", () => overlay.output().includes("SIGHUP is ignored"));
    await echoes(flow, "hung up");
    overlay.child.kill("SIGINT");
    await waitFor("it drains", () => overlay.output().includes("draining"));
    await echoes(flow, "interrupted");
    flow.socket.end();
    expect(await overlay.ended).toBe(0);
  });

  it("keeps its table when it receives a newer form, a damaged one, or the same", async () => {
    const overlay = startOverlayProcess(tempDir());
    const port = await freePort();
    const table = aTable([aListener(port, await aServer(echo))]);
    const agent = await asAgent(overlay);
    const set = (value: unknown): Promise<unknown> =>
      agent.peer.request("table.set", { table: value as OverlayTable }).catch((error: unknown) => error);
    await set(table);
    const client = aClient(port);
    await echoes(client, "before");
    expect(await set({ ...table, format: OVERLAY_FORMAT + 1, listeners: "of another kind" })).toMatchObject({
      code: "invalid-body",
      message: expect.stringContaining("older than the table") as string,
    });
    const [listener] = table.listeners;
    expect(await set({ ...table, version: 99, listeners: [{ ...listener, port: 70_000 }] })).toMatchObject({
      code: "invalid-body",
    });
    expect(await set({ ...table, version: 99, listeners: [listener, listener] })).toMatchObject({
      code: "invalid-body",
    });
    expect(await set({ ...table, version: 99, listeners: [{ ...listener, sources: ["10.0.0.0/40"] }] })).toMatchObject({
      code: "invalid-body",
    });
    expect(await set(table)).toMatchObject({ version: table.version });
    expect(await agent.peer.request("table.get", {})).toMatchObject({
      version: table.version,
      hash: tableHash(table),
      table,
    });
    expect(await agent.peer.request("table.get", { known: tableHash(table) })).not.toHaveProperty("table");
    await echoes(client, "after");
  });

  it("sets a damaged table aside, reports it, and serves the previous one", async () => {
    const dir = tempDir();
    const [older, newer] = [await freePort(), await freePort()];
    const target = await aServer(echo);
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    await agent.peer.request("table.set", { table: aTable([aListener(older, target)]) });
    await agent.peer.request("table.set", { table: aTable([aListener(newer, target)]) });
    first.child.kill("SIGKILL");
    await first.ended;
    writeFileSync(join(first.stateDir, "table.json"), '{"format":1,"sha256":"00","body":{}}');
    const second = startOverlayProcess(dir);
    const faults: string[] = [];
    const again = await asAgent(second, {
      fault: ({ code, message }) => void faults.push(`${code}: ${message}`),
      "fault.mended": ({ file }) => void faults.push(`mended: ${file}`),
    });
    await again.peer.request("table.get", {});
    await waitFor("it is reported", () => faults.length === 2);
    expect(faults).toEqual([
      expect.stringMatching(/^damaged-file: .*; its other copy is applied$/),
      "mended: table.json",
    ]);
    await echoes(aClient(older), "recovered");
    expect(existsSync(join(first.stateDir, "table.json.damaged"))).toBe(true);
    expect(JSON.parse(readFileSync(join(first.stateDir, "table.json"), "utf8"))).toMatchObject({ body: { format: 1 } });
  });

  it("reports a table of a newer version as such, until it receives another", async () => {
    const dir = tempDir();
    const body = { format: OVERLAY_FORMAT + 1, version: 9, elsewhere: true };
    const sha256 = createHash("sha256").update(JSON.stringify(body)).digest("hex");
    mkdirSync(join(dir, "state"), { recursive: true });
    writeFileSync(join(dir, "state/table.json"), JSON.stringify({ format: 1, sha256, body }));
    const faults: string[] = [];
    const agent = await asAgent(startOverlayProcess(dir), {
      fault: ({ code, message }) => void faults.push(`${code}: ${message}`),
      "fault.mended": ({ file }) => void faults.push(`mended: ${file}`),
    });
    await agent.peer.request("table.get", {});
    await waitFor("it is reported", () => faults.length === 1);
    expect(faults[0]).toMatch(
      /^newer-file: the overlay's last table is of a newer version than this overlay; it was set/,
    );
    await agent.peer.request("table.set", { table: aTable([]) });
    await waitFor("it is mended", () => faults[1] === "mended: table.json");
  });

  it("belongs to the newest agent, and sends it the events since", async () => {
    const overlay = startOverlayProcess(tempDir());
    const port = await freePort();
    const first = await asAgent(overlay);
    await first.peer.request("table.set", { table: aTable([aListener(port, await freePort())]) });
    first.close();
    const refused = aClient(port);
    await waitFor("a refusal", () => refused.fate() === "ECONNRESET");
    const flows: OverlayFlow[] = [];
    const second = await asAgent(overlay, { "flows.ended": (batch) => void flows.push(...batch.flows) });
    await second.peer.request("counters.get", {});
    await waitFor("the record", () => flows.length === 1);
    expect(flows[0]).toMatchObject({ reason: "connect-refused", listener: `tcp:${port}` });
    const third = await asAgent(overlay);
    expect(await third.peer.request("counters.get", {})).toMatchObject({ pid: overlay.pid, draining: false });
    await expect(second.peer.request("table.get", {})).rejects.toThrow();
  });

  it("survives anything written to its socket", async () => {
    const overlay = startOverlayProcess(tempDir());
    const agent = await asAgent(overlay);
    await agent.peer.request("table.get", {});
    for (const bad of [
      "not json\n",
      '{"jsonrpc":"2.0","id":1,"method":"table.set","params":{"__proto__":{}}}\n',
      "[]\n",
      "\0\n",
    ]) {
      const socket = connect(join(overlay.runDir, "overlay.sock")).on("error", () => undefined);
      const closed = new Promise((resolve) => socket.once("close", resolve));
      socket.write(bad);
      socket.resume();
      await closed;
    }
    expect(await agent.peer.request("table.get", {})).toMatchObject({ version: 0 });
  });

  it("refuses to start if another one serves", async () => {
    const dir = tempDir();
    const overlay = startOverlayProcess(dir);
    await asAgent(overlay);
    const intruder = startOverlayProcess(dir);
    expect(await intruder.ended).toBe(1);
    expect(intruder.output()).toContain("another process answers");
  });

  it("serves on without its run directory, which it creates again, and ends with its state", async () => {
    const overlay = startOverlayProcess(tempDir());
    const agent = await asAgent(overlay);
    const port = await freePort();
    await agent.peer.request("table.set", { table: aTable([aListener(port, await aServer(echo))]) });
    const flow = aClient(port);
    await echoes(flow, "before");
    rmSync(overlay.runDir, { recursive: true });
    const path = join(overlay.runDir, "overlay.sock");
    await waitFor("its socket exists again", () => existsSync(path));
    await echoes(flow, "after");
    expect(await agent.peer.request("counters.get", {})).toMatchObject({ pid: overlay.pid });
    const again = await asAgent(overlay);
    expect(await again.peer.request("counters.get", {})).toMatchObject({ pid: overlay.pid, draining: false });
    await waitFor("its process is named again", () => existsSync(join(overlay.runDir, "overlay.pid")));
    rmSync(path);
    await waitFor("its socket is there once more", () => existsSync(path));
    rmSync(overlay.stateDir, { recursive: true });
    expect(await overlay.ended).toBe(0);
  });

  it("hands ports and flows to one that was started while its socket was missing", async () => {
    const dir = tempDir();
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    const port = await freePort();
    const table = aTable([aListener(port, await aServer(echo))]);
    await agent.peer.request("table.set", { table });
    const flow = aClient(port);
    await echoes(flow, "before");
    agent.close();
    // Stopped, the first one cannot create its socket again before the second one has its own.
    first.child.kill("SIGSTOP");
    rmSync(join(first.runDir, "overlay.sock"));
    const second = startOverlayProcess(dir);
    const other = await asAgent(second);
    first.child.kill("SIGCONT");
    await waitFor("the first one drains", () => first.output().includes("draining"));
    await echoes(flow, "after");
    flow.socket.end();
    expect(await first.ended).toBe(GAVE_WAY_STATUS);
    await waitFor("the second one has the port", async () => {
      const { listeners } = await other.peer.request("table.set", { table });
      return listeners.every(({ state }) => state === "listening");
    });
  });

  it("drains at SIGTERM: accepts nothing, cuts nothing, and ends with the last flow", async () => {
    const overlay = startOverlayProcess(tempDir());
    const agent = await asAgent(overlay);
    const port = await freePort();
    await agent.peer.request("table.set", { table: aTable([aListener(port, await aServer(echo))]) });
    const client = aClient(port);
    await echoes(client, "one");
    overlay.child.kill("SIGTERM");
    await waitFor("nobody listens", async () => {
      const late = aClient(port);
      await waitFor("an answer", () => late.fate() !== undefined || late.socket.readyState === "open");
      // One accepted before the listener closed would be waited for as any other.
      late.socket.destroy();
      return late.fate() === "ECONNREFUSED";
    });
    await echoes(client, "two");
    client.socket.end();
    expect(await overlay.ended).toBe(0);
  });

  it("serves thousands of concurrent connects, each with its own bytes", async () => {
    const overlay = startOverlayProcess(tempDir());
    const agent = await asAgent(overlay);
    const port = await freePort();
    // The server shares this process with all the clients, so on a busy machine it may take its time.
    const service = aService("echo", await aServer(echo), { connectTimeoutMs: 60_000 });
    await agent.peer.request("table.set", { table: aTable([aListener(port, { service: "echo" })], [service]) });
    const count = TESTS_ALL ? 5000 : 2000;
    const clients = Array.from({ length: count }, (_, i) => {
      const client = aClient(port);
      client.socket.end(String(i));
      return client;
    });
    await waitFor("all have ended", () => clients.every((client) => client.fate() !== undefined));
    const { counters } = await waitFor("all are counted", async () => {
      const report = await agent.peer.request("counters.get", {});
      return report.counters[0]?.activeFlows === 0 && report;
    });
    const wrong = clients.filter((client, i) => client.text() !== String(i) || client.fate() !== "end");
    expect(counters).toMatchObject([{ flows: count, refusals: {}, errors: {} }]);
    expect(wrong.map((client) => client.fate())).toEqual([]);
  });

  it("loses no connect that arrives while it cannot accept, at least two thousand", async () => {
    const overlay = startOverlayProcess(tempDir());
    const agent = await asAgent(overlay);
    const port = await freePort();
    const service = aService("echo", await aServer(echo), { connectTimeoutMs: 60_000 });
    await agent.peer.request("table.set", { table: aTable([aListener(port, { service: "echo" })], [service]) });
    overlay.child.kill("SIGSTOP");
    const clients = Array.from({ length: 2000 }, () => aClient(port));
    await waitFor("the kernel has taken all", () => clients.every(({ socket }) => socket.readyState === "open"));
    overlay.child.kill("SIGCONT");
    for (const client of clients) client.socket.end("x");
    await waitFor("all have ended", () => clients.every((client) => client.fate() !== undefined));
    expect(clients.filter((client) => client.text() !== "x")).toEqual([]);
  });

  it("continues when its descriptors are exhausted", async () => {
    const overlay = startOverlayProcess(tempDir(), [], ["bash", "--norc", "-c", 'ulimit -n 128; exec "$0" "$@"']);
    const agent = await asAgent(overlay);
    const port = await freePort();
    await agent.peer.request("table.set", { table: aTable([aListener(port, await aServer(echo))]) });
    const clients = Array.from({ length: 300 }, () => aClient(port));
    for (const client of clients) client.socket.write("x");
    await waitFor("everybody knows", () =>
      clients.every((client) => client.text() === "x" || client.fate() !== undefined),
    );
    const served = clients.filter((client) => client.text() === "x");
    expect(served.length).toBeGreaterThan(10);
    expect(served.length).toBeLessThan(64);
    const { counters } = await agent.peer.request("counters.get", {});
    expect(counters[0]?.refusals["out-of-resources"]).toBe(300 - served.length);
    for (const client of clients) client.socket.destroy();
    await waitFor("room again", async () => {
      const client = aClient(port);
      client.socket.write("y");
      await waitFor("an answer", () => client.text() === "y" || client.fate() !== undefined);
      return client.text() === "y";
    });
  });
});

describe("a successor", () => {
  it("takes over under traffic: refuses no connect and cuts no flow", async () => {
    asBesideAnAgent();
    const dir = tempDir();
    const port = await freePort();
    const first = startOverlayProcess(dir);
    const agent = await asAgent(first);
    const table = aTable([aListener(port, await aServer(echo))]);
    await agent.peer.request("table.set", { table });
    const running = Array.from({ length: 20 }, () => aClient(port));
    for (const client of running) await echoes(client, "before");

    const second = startOverlayProcess(dir, ["--successor"]);
    const lost: string[] = [];
    let connects = 0;
    const over = new AbortController();
    const load = Array.from({ length: 4 }, async () => {
      while (!over.signal.aborted) {
        const client = aClient(port);
        client.socket.end("x");
        await waitFor("an end", () => client.fate() !== undefined);
        connects += 1;
        if (client.text() !== "x") lost.push(client.fate() ?? "");
      }
    });
    await waitFor("it took over", () => second.output().includes("took over"));
    const heir = await asAgent(second);
    expect(await heir.peer.request("counters.get", {})).toMatchObject({ pid: second.pid, version: table.version });
    const enough = connects + 50;
    await waitFor("more connects", () => connects > enough);
    over.abort();
    await Promise.all(load);
    expect(lost).toEqual([]);
    for (const client of running) await echoes(client, "after");
    expect(first.child.exitCode).toBeNull();
    for (const client of running) client.socket.end();
    // Its starter knows that it must not be restarted.
    expect(await first.ended).toBe(GAVE_WAY_STATUS);
    await echoes(aClient(port), "the heir serves");
    expect(Number(readFileSync(join(dir, "run/overlay.pid"), "utf8"))).toBe(second.pid);
  });

  it("starts alone without a predecessor", async () => {
    const overlay = startOverlayProcess(tempDir(), ["--successor"]);
    const agent = await asAgent(overlay);
    expect(await agent.peer.request("table.get", {})).toEqual({ version: 0, hash: "", listeners: [], services: [] });
  });
});
