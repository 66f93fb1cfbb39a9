import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { pino } from "pino";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { serveLocalApi } from "../../../../src/agent/local-api/server.ts";
import { HostError } from "../../../../src/errors.ts";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { FakeLocalProvider, identity } from "../../../support/fake-local-provider.ts";
import { someDirectories, startLocalAgent, type Directories } from "../../../support/local-agent.ts";

const PATIENTLY = { timeout: 120_000 };

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
}

function send(agent: Directories, socket: string, method: string, path: string, body = ""): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: join(agent.runDir, socket), method, path, agent: false }, (message) => {
      let text = "";
      message.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
      message.once("end", () => resolve({ status: message.statusCode, text }));
      message.once("error", reject);
    });
    outgoing.once("error", reject);
    outgoing.end(body);
  });
}

function codeOf({ text }: Answer): unknown {
  return (JSON.parse(text) as { error: { code: unknown } }).error.code;
}

function options(dirs: Directories): Parameters<typeof serveLocalApi>[0] {
  return {
    runDir: dirs.runDir,
    provider: new FakeLocalProvider(),
    log: pino({ level: "silent" }),
    clock: systemClock(),
  };
}

describe("the sockets", () => {
  it("have modes that exclude others, and are removed when the agent stops", async () => {
    await using agent = await startLocalAgent();
    const modeOf = (name: string): number => statSync(join(agent.runDir, name)).mode & 0o777;
    expect(modeOf("")).toBe(0o750);
    expect(modeOf("agent.sock")).toBe(0o660);
    expect(modeOf("admin.sock")).toBe(0o600);
    await agent.close();
    expect(existsSync(join(agent.runDir, "agent.sock"))).toBe(false);
    expect(existsSync(join(agent.runDir, "admin.sock"))).toBe(false);
  });

  it("left by a dead agent are taken over by one of several concurrent starts", async () => {
    await using dirs = await someDirectories();
    const at = (path: string): string => JSON.stringify(new URL(`../../../../${path}`, import.meta.url).href);
    const text = `
      const { serveLocalApi } = await import(${at("src/agent/local-api/server.ts")});
      const { systemClock } = await import(${at("src/host/clock.ts")});
      const { pino } = await import("pino");
      process.stdin.once("data", async () => {
        const options = { provider: {}, log: pino({ level: "silent" }), clock: systemClock() };
        await serveLocalApi({ ...options, runDir: ${JSON.stringify(dirs.runDir)} }).then(
          () => console.log("serves"),
          ({ code }) => console.log(code),
        );
      });
      console.log("ready");`;
    const starters = Array.from({ length: 5 }, () =>
      spawn(process.execPath, ["--input-type=module", "-e", text], { stdio: ["pipe", "pipe", "inherit"] }),
    );
    onTestFinished(() => starters.forEach((starter) => starter.kill("SIGKILL")));
    const printed = async (starter: (typeof starters)[number]): Promise<string> => {
      const [data] = (await once(starter.stdout, "data")) as [Buffer];
      return data.toString().trim();
    };
    // The first round leaves sockets for those of the second.
    for (const round of [starters.slice(0, 1), starters.slice(1)]) {
      expect(await Promise.all(round.map(printed))).toEqual(round.map(() => "ready"));
      const verdicts = round.map(printed);
      for (const starter of round) starter.stdin.write("go");
      const others = Array<string>(round.length - 1).fill("socket-in-use");
      expect((await Promise.all(verdicts)).sort()).toEqual(["serves", ...others].sort());
      for (const starter of round) starter.kill("SIGKILL");
      await Promise.all(round.map((starter) => once(starter, "exit")));
    }
    expect(existsSync(join(dirs.runDir, "agent.sock"))).toBe(true);
  });

  it("stay with their agent, and a second one names it", async () => {
    await using agent = await startLocalAgent();
    await expect(serveLocalApi(options(agent))).rejects.toThrow(/another agent already serves .*run/);
    writeFileSync(join(agent.runDir, "agent.pid"), `${process.pid}\n`);
    await expect(serveLocalApi(options(agent))).rejects.toMatchObject({
      code: "socket-in-use",
      details: { pid: process.pid },
    });
    expect((await send(agent, "agent.sock", "GET", "/v1/status")).status).toBe(200);
  });

  it("are closed when only one of the two could be opened", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.runDir);
    writeFileSync(join(dirs.runDir, "admin.sock"), "");
    await expect(serveLocalApi(options(dirs))).rejects.toMatchObject({ code: "not-a-socket" });
    expect(existsSync(join(dirs.runDir, "agent.sock"))).toBe(false);
  });

  it("removed by somebody are served again with everything beside them, and no exchange ends", async () => {
    await using dirs = await someDirectories();
    const clock = new FakeClock();
    const reported: string[] = [];
    const provider = new FakeLocalProvider();
    provider.isTriggerEndless = true;
    const api = await serveLocalApi({
      ...options(dirs),
      provider,
      clock,
      onLost: ({ message }) => reported.push(message),
      onServed: () => reported.push("served"),
    });
    const open = connect(join(dirs.runDir, "admin.sock"));
    open.write("POST /v1/trigger/tg-ping HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    await vi.waitUntil(() => provider.requested.length === 1, PATIENTLY);
    rmSync(dirs.runDir, { recursive: true });
    writeFileSync(dirs.runDir, "in the way");
    await clock.advance(6000);
    await vi.waitUntil(() => reported.length === 1, PATIENTLY);
    rmSync(dirs.runDir);
    await vi.waitUntil(async () => {
      await clock.advance(6000);
      return reported.at(-1) === "served";
    }, PATIENTLY);
    for (const socket of ["agent.sock", "admin.sock"])
      expect((await send(dirs, socket, "GET", "/v1/status")).status).toBe(200);
    expect(statSync(join(dirs.runDir, "admin.sock")).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(dirs.runDir, "agent.pid"), "utf8")).toBe(`${process.pid}\n`);
    await expect(serveLocalApi(options(dirs))).rejects.toMatchObject({ code: "socket-in-use" });
    expect(provider.aborted).toBe(0);
    open.destroy();
    await api.close();
    expect(existsSync(join(dirs.runDir, "agent.sock"))).toBe(false);
  });

  it("are refused if the path is too long, before anything is created", async () => {
    await using dirs = await someDirectories();
    const runDir = join(dirs.root, "r".repeat(100));
    await expect(serveLocalApi({ ...options(dirs), runDir })).rejects.toMatchObject({ code: "path-too-long" });
    expect(existsSync(runDir)).toBe(false);
  });
});

describe("the endpoints", () => {
  it.each(["agent.sock", "admin.sock"])("read on %s", async (socket) => {
    await using agent = await startLocalAgent();
    agent.provider.lines = [1, 2, 3].map((time) => ({ time, level: "info" as const, message: `line ${time}` }));
    expect(JSON.parse((await send(agent, socket, "GET", "/v1/status")).text)).toEqual(agent.provider.currentStatus);
    expect(JSON.parse((await send(agent, socket, "GET", "/v1/health")).text)).toEqual(agent.provider.currentHealth);
    for (const path of ["/v1/connectors", "/v1/services"]) {
      const { status, text } = await send(agent, socket, "GET", path);
      expect({ status, overlay: JSON.parse(text) as unknown }).toMatchObject({
        status: 200,
        overlay: { overlay: { state: "up" } },
      });
    }
    const logs = await send(agent, socket, "GET", "/v1/logs?lines=2");
    expect(logs.text).toBe(
      agent.provider.lines
        .slice(1)
        .map((line) => `${JSON.stringify(line)}\n`)
        .join(""),
    );
  });

  it("show secrets of the configuration to readers of the admin socket only", async () => {
    await using agent = await startLocalAgent();
    const secret = { exec: { commands: [{ id: "1", variables: [{ name: "A", value: "correct-horse" }] }] } };
    agent.provider.currentConfig = secret;
    const plain = await send(agent, "admin.sock", "GET", "/v1/config");
    expect(plain.text).toContain("***");
    expect(plain.text).not.toContain("correct-horse");
    expect(JSON.parse((await send(agent, "admin.sock", "GET", "/v1/config?secrets=1")).text)).toEqual(secret);
    expect((await send(agent, "admin.sock", "GET", "/v1/config?secrets=yes")).status).toBe(422);
    expect((await send(agent, "agent.sock", "GET", "/v1/config?secrets=1")).text).not.toContain("correct-horse");
  });

  it.each(["/v1/trigger/tg-ping", "/v1/register", "/v1/reset", "/v1/reset-floor", "/v1/upgrade", "/v1/wake"])(
    "write only on the admin socket: %s",
    async (path) => {
      await using agent = await startLocalAgent();
      const answer = await send(agent, "agent.sock", "POST", path, "{}");
      expect([answer.status, codeOf(answer)]).toEqual([403, "access-denied"]);
      expect(agent.provider.requested).toEqual([]);
    },
  );

  it("write what is requested", async () => {
    await using agent = await startLocalAgent();
    expect(JSON.parse((await send(agent, "admin.sock", "POST", "/v1/register", '{"license":"a.b.c"}')).text)).toEqual(
      identity,
    );
    expect(JSON.parse((await send(agent, "admin.sock", "POST", "/v1/reset-floor", '{"name":"node"}')).text)).toEqual({
      name: "node",
      from: 7,
      to: 0,
    });
    expect((await send(agent, "admin.sock", "POST", "/v1/wake")).text).toBe("{}\n");
    const upgrade = await send(agent, "admin.sock", "POST", "/v1/upgrade", '{"from":"/srv/manifest.jws"}');
    expect(JSON.parse(upgrade.text)).toEqual({ output: { status: "Upgrade in progress" } });
    const order = { from: "/srv/manifest.jws", skipUnattended: false, isForced: false };
    expect(agent.provider.requested).toEqual([{ license: "a.b.c" }, { name: "node" }, "wake", { order }]);
  });

  it.each([
    ["GET", "/v1/nothing", "", 404, "not-found"],
    ["GET", "/v1/trigger/", "", 404, "not-found"],
    ["POST", "/v1/trigger/a/b", "", 404, "not-found"],
    ["GET", "//", "", 404, "not-found"],
    ["DELETE", "/v1/status", "", 405, "not-supported"],
    ["POST", "/v1/trigger/No%20Name", "", 422, "invalid-body"],
    ["POST", "/v1/trigger/%ff", "", 422, "invalid-body"],
    ["POST", "/v1/trigger/tg-ping", "{", 422, "invalid-json"],
    ["POST", "/v1/trigger/tg-ping", '{"__proto__":1}', 422, "forbidden-key"],
    ["POST", "/v1/trigger/tg-ping", `${"[".repeat(40)}${"]".repeat(40)}`, 422, "too-deep"],
    ["POST", "/v1/register", "x".repeat(70_000), 413, "too-large"],
    ["POST", "/v1/register", "{}", 422, "invalid-body"],
    ["POST", "/v1/reset", "{}", 422, "invalid-body"],
    ["POST", "/v1/register", JSON.stringify({ license: "x".repeat(9000) }), 422, "invalid-body"],
    ["POST", "/v1/reset-floor", '{"name":"all"}', 422, "invalid-body"],
    ["POST", "/v1/reset-floor", '{"name":"cluster"}', 404, "not-found"],
    ["GET", "/v1/logs?lines=many", "", 422, "invalid-body"],
    ["POST", "/v1/upgrade", '{"from":"manifest.jws"}', 422, "invalid-body"],
    ["POST", "/v1/upgrade", '{"from":"ftp://a.example/m"}', 422, "invalid-body"],
    ["POST", "/v1/upgrade", '{"by":"control-plane"}', 422, "invalid-body"],
  ])("answer %s %s, an invalid request, with an error", async (method, path, body, status, code) => {
    await using agent = await startLocalAgent();
    const answer = await send(agent, "admin.sock", method, path, body);
    expect([answer.status, codeOf(answer)]).toEqual([status, code]);
  });

  it("hide the details of an internal error, and continue", async () => {
    await using agent = await startLocalAgent();
    agent.provider.thrown = new TypeError("secret of the inside");
    const answer = await send(agent, "agent.sock", "GET", "/v1/status");
    expect(answer.status).toBe(500);
    expect(answer.text).not.toContain("secret");
    agent.provider.thrown = undefined;
    expect((await send(agent, "agent.sock", "GET", "/v1/status")).status).toBe(200);
  });
});

describe("a trigger", () => {
  it("streams its lines and accepts a missing body as empty", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [
      { kind: "progress", seq: 0, channel: "stdout", data: "64 bytes\n" },
      { kind: "result", body: { exitCode: "0" } },
    ];
    for (const body of ["", " \n", "null", "{}"]) {
      const answer = await send(agent, "admin.sock", "POST", "/v1/trigger/tg-ping", body);
      expect(
        answer.text
          .trim()
          .split("\n")
          .map((line) => JSON.parse(line) as unknown),
      ).toEqual(agent.provider.triggerLines);
    }
    expect(agent.provider.requested).toEqual(Array.from({ length: 4 }, () => ({ event: "tg-ping", body: {} })));
  });

  it("ends with the error that it threw", async () => {
    await using agent = await startLocalAgent();
    agent.provider.triggerLines = [];
    agent.provider.thrown = new HostError("tool-missing", "ping is not installed", { details: { tool: "ping" } });
    const answer = await send(agent, "admin.sock", "POST", "/v1/trigger/tg-ping");
    expect(JSON.parse(answer.text)).toEqual({
      kind: "error",
      code: "tool-missing",
      message: "ping is not installed",
      details: { tool: "ping" },
    });
  });

  it("is aborted when its caller leaves, and when the agent stops", async () => {
    await using agent = await startLocalAgent();
    agent.provider.isTriggerEndless = true;
    agent.provider.triggerLines = [{ kind: "progress", seq: 0, channel: "stdout", data: "started" }];
    const start = async (): Promise<Socket> => {
      const socket = connect(join(agent.runDir, "admin.sock"));
      socket.on("error", () => undefined);
      socket.write("POST /v1/trigger/tg-ping HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
      await vi.waitUntil(() => agent.provider.requested.length > agent.provider.aborted, PATIENTLY);
      return socket;
    };
    (await start()).destroy();
    await vi.waitUntil(() => agent.provider.aborted === 1, PATIENTLY);
    await start();
    await agent.close();
    await vi.waitUntil(() => agent.provider.aborted === 2, PATIENTLY);
  });

  it("sends keep-alives between its lines", async () => {
    await using dirs = await someDirectories();
    const beats: (() => void)[] = [];
    const clock: Clock = { ...systemClock(), after: (_ms, run) => (beats.push(run), (): void => undefined) };
    const provider = new FakeLocalProvider();
    provider.isTriggerEndless = true;
    provider.triggerLines = [];
    const api = await serveLocalApi({ ...options(dirs), provider, clock });
    // Without the watch over the sockets.
    beats.length = 0;
    const socket = connect(join(dirs.runDir, "admin.sock"));
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    socket.write("POST /v1/trigger/tg-ping HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    for (let beat = 0; beat < 2; beat += 1) {
      await vi.waitUntil(() => beats.length === beat + 1, PATIENTLY);
      const before = text.length;
      beats[beat]?.();
      await vi.waitUntil(() => text.length > before, PATIENTLY);
    }
    expect(text.split("\r\n\r\n")[1]).toBe("1\r\n\n\r\n1\r\n\n\r\n");
    socket.destroy();
    await api.close();
  });

  it("runs no faster than its caller reads", async () => {
    await using agent = await startLocalAgent();
    let produced = 0;
    agent.provider.trigger = async function* (): AsyncGenerator<{
      kind: "progress";
      seq: number;
      channel: "stdout";
      data: string;
    }> {
      for (; produced < 10_000; produced += 1)
        yield { kind: "progress", seq: produced, channel: "stdout", data: "x".repeat(10_000) };
    };
    const socket = connect(join(agent.runDir, "admin.sock"));
    socket.write("POST /v1/trigger/tg-ping HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    let before = -1;
    await vi.waitUntil(
      () => {
        const isStill = produced > 0 && produced === before;
        before = produced;
        return isStill;
      },
      { interval: 100, ...PATIENTLY },
    );
    expect(produced).toBeLessThan(1000);
    socket.destroy();
  });
});

describe("the limits", () => {
  it("drop callers beyond the number for each socket", async () => {
    await using agent = await startLocalAgent({ maxConnections: 2 });
    const idle = [1, 2].map(() => connect(join(agent.runDir, "agent.sock")));
    await Promise.all(idle.map((socket) => once(socket, "connect")));
    await expect(send(agent, "agent.sock", "GET", "/v1/status")).rejects.toThrow(/hang up|ECONNRESET|EPIPE/);
    expect((await send(agent, "admin.sock", "GET", "/v1/status")).status).toBe(200);
    for (const socket of idle) socket.destroy();
    await vi.waitUntil(async () => {
      const answer = await send(agent, "agent.sock", "GET", "/v1/status").catch(() => undefined);
      return answer?.status === 200;
    }, PATIENTLY);
  });

  it.each(["GET /v1/status HT", "POST /v1/wake HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc"])(
    "end a caller that never finishes %j",
    async (beginning) => {
      await using agent = await startLocalAgent({ headersTimeoutMs: 100, requestTimeoutMs: 200 });
      const socket = connect(join(agent.runDir, "admin.sock"));
      socket.resume().write(beginning);
      await once(socket, "close");
      expect(socket.destroyed).toBe(true);
    },
  );
});
