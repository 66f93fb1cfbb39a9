import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { listenOnSocket, makeRunDirectory, probeSocket } from "../../../../src/host/net/unix-socket.ts";
import { someDirectories } from "../../../support/local-agent.ts";

/** Leaves a socket behind as a killed process does. */
async function leaveStaleSocket(path: string): Promise<void> {
  const script = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  await once(spawn(process.execPath, ["-e", script]), "close");
}

describe("sockets", () => {
  it("distinguishes absent, stale and live ones", async () => {
    await using dirs = await someDirectories();
    const path = join(dirs.root, "a.sock");
    expect(await probeSocket(path)).toBe("absent");
    await leaveStaleSocket(path);
    expect(await probeSocket(path)).toBe("stale");
    const server = createServer();
    await listenOnSocket(server, path, 0o640);
    expect(await probeSocket(path)).toBe("live");
    expect(statSync(path).mode & 0o777).toBe(0o640);
    await expect(listenOnSocket(createServer(), path, 0o600)).rejects.toMatchObject({ code: "socket-in-use" });
    expect(await probeSocket(path)).toBe("live");
    server.close();
    await once(server, "close");
    expect(existsSync(path)).toBe(false);
  });

  it("never replaces a file that is not a socket", async () => {
    await using dirs = await someDirectories();
    const path = join(dirs.root, "a.sock");
    writeFileSync(path, "precious");
    await expect(listenOnSocket(createServer(), path, 0o600)).rejects.toMatchObject({ code: "not-a-socket" });
    expect(statSync(path).size).toBe(8);
  });

  it("names the missing directory", async () => {
    await expect(listenOnSocket(createServer(), "/nonexistent/a.sock", 0o600)).rejects.toThrow(
      /\/nonexistent\/a\.sock/,
    );
  });
});

describe("the run directory", () => {
  it("is created with 0750 under any umask", async () => {
    await using dirs = await someDirectories();
    const umask = process.umask(0o077);
    await makeRunDirectory(join(dirs.root, "deep", "run")).finally(() => process.umask(umask));
    expect(statSync(join(dirs.root, "deep", "run")).mode & 0o777).toBe(0o750);
  });

  it("keeps an existing one and refuses a world-writable one", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.runDir);
    chmodSync(dirs.runDir, 0o711);
    await makeRunDirectory(dirs.runDir);
    expect(statSync(dirs.runDir).mode & 0o777).toBe(0o711);
    chmodSync(dirs.runDir, 0o1777);
    await expect(makeRunDirectory(dirs.runDir)).rejects.toMatchObject({ code: "unsafe-directory" });
  });

  it("refuses a file in its place", async () => {
    await using dirs = await someDirectories();
    writeFileSync(dirs.runDir, "");
    await expect(makeRunDirectory(dirs.runDir)).rejects.toMatchObject({ code: "directory-failed" });
  });
});
