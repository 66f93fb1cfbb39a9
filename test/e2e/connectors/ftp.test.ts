import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { aVsftpd } from "../../support/data-store/file-servers.ts";
import { aListener, aService, planeRig } from "../../support/overlay/overlay-rig.ts";
import { grant, peerRig } from "../../support/overlay/peer-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const run = promisify(execFile);
const ftp = { application: "ftp" } as const;

/** curl as a client that follows the addresses of the server's replies. */
const curl = (...args: readonly string[]) =>
  run("curl", ["--silent", "--show-error", "--max-time", "20", "--no-ftp-skip-pasv-ip", ...args], {
    encoding: "buffer",
    maxBuffer: 64 * 1024 * 1024,
  });

async function local(port: number, server: number) {
  const rig = planeRig();
  await rig.apply([aListener(port, { service: "files" }, ftp)], [aService("files", server, ftp)]);
  return [rig];
}

async function remote(port: number, server: number) {
  const rig = peerRig();
  const [source, destination] = await Promise.all([rig.node(1), rig.node(2)]);
  await destination.apply([], [aService("files", server, ftp)]);
  await source.apply([aListener(port, { peer: destination.uid, service: "files" }, ftp)]);
  source.meet([destination.peer]);
  destination.meet([source.peer], [grant(source, "files")]);
  return [source, destination];
}

const CASES = [
  ["here", "--ftp-pasv --disable-epsv", local],
  ["here", "--ftp-pasv", local],
  ["on another node", "--ftp-pasv --disable-epsv", remote],
  ["on another node", "--ftp-pasv", remote],
] as const;

test.each(sampleOf(CASES, 2, "modes of FTP"))("files go to and from vsftpd %s, %s", async (_, mode, set) => {
  const server = await aVsftpd(tempDir());
  const bytes = randomBytes(3 * 1024 * 1024);
  chmodSync(server.root, 0o755);
  writeFileSync(join(server.root, "large.bin"), bytes);
  chmodSync(server.root, 0o555);
  const port = await freePort();
  const rigs = await set(port, server.port);
  const url = `ftp://127.0.0.1:${port}`;
  const options = mode.split(" ");
  expect((await curl(...options, `${url}/`)).stdout.toString()).toContain("large.bin");
  const { stdout } = await curl(...options, `${url}/large.bin`);
  expect(stdout.equals(bytes)).toBe(true);
  await curl(...options, "--upload-file", join(server.root, "large.bin"), `${url}/upload/there.bin`);
  expect(readFileSync(join(server.root, "upload/there.bin")).equals(bytes)).toBe(true);
  for (const rig of rigs) {
    const records = await waitFor("six flows", async () => {
      await rig.nextFlow();
      return rig.ended.length === 6 ? rig.ended : undefined;
    });
    expect(records.every(({ service, reason }) => service === "files" && reason === undefined)).toBe(true);
    expect(records.filter(({ sourceBytes }) => sourceBytes === bytes.length)).toHaveLength(1);
    expect(records.filter(({ destBytes }) => destBytes === bytes.length)).toHaveLength(1);
  }
  expect(rigs[0]?.counters()).toMatchObject({ flows: 6, activeFlows: 0, refusals: {}, errors: {} });
});
