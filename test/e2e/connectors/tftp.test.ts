import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { aTftpd } from "../../support/data-store/file-servers.ts";
import { aListener, aService, planeRig } from "../../support/overlay/overlay-rig.ts";
import { grant, peerRig } from "../../support/overlay/peer-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const run = promisify(execFile);
const tftp = { protocol: "udp", application: "tftp", idleTimeoutMs: 60_000 } as const;

async function local(port: number, server: number) {
  const rig = planeRig();
  await rig.apply([aListener(port, { service: "boot" }, tftp)], [aService("boot", server, tftp)]);
  return [rig];
}

async function remote(port: number, server: number) {
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  await destination.apply([], [aService("boot", server, tftp)]);
  await source.apply([aListener(port, { peer: destination.uid, service: "boot" }, tftp)]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "boot", "udp")]);
  return [source, destination];
}

test.each([
  ["here", local],
  ["on another node", remote],
] as const)("files go to and from in.tftpd %s", async (_, set) => {
  const dir = tempDir();
  const server = await aTftpd(dir);
  const bytes = randomBytes(100 * 1024);
  writeFileSync(join(server.root, "large.bin"), bytes);
  const port = await freePort();
  const [rig] = await set(port, server.port);
  const curl = (...args: readonly string[]) =>
    run("curl", ["--silent", "--show-error", "--max-time", "20", ...args], { encoding: "buffer", maxBuffer: 1e7 });
  const url = `tftp://127.0.0.1:${port}`;
  // With and without options that the server acknowledges, as boot loaders use.
  for (const options of [["--tftp-blksize", "1400"], ["--tftp-no-options"]]) {
    const { stdout } = await curl(...options, `${url}/large.bin`);
    expect(stdout.equals(bytes)).toBe(true);
  }
  await curl("--upload-file", join(server.root, "large.bin"), `${url}/there.bin`);
  expect(readFileSync(join(server.root, "there.bin")).equals(bytes)).toBe(true);

  // The client of tftp-hpa makes both transfers from one port.
  const own = (name: string): string => join(dir, name);
  const commands = ["get", "large.bin", own("first"), "get", "there.bin", own("second")];
  const child = run("tftp", ["-m", "binary", "127.0.0.1", String(port)], { timeout: 120_000 });
  child.child.stdin?.end(`${commands.slice(0, 3).join(" ")}\n${commands.slice(3).join(" ")}\nquit\n`);
  await child;
  for (const name of ["first", "second"]) expect(readFileSync(own(name)).equals(bytes)).toBe(true);
  expect(rig?.counters()).toMatchObject({ flows: 5, refusals: {} });
});
