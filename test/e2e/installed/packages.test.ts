import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { once } from "node:events";
import { copyFileSync, cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { constants, zstdCompressSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { MAX_PACKAGE_BYTES } from "../../../scripts/packaging/release.ts";
import type { ReleaseClaims } from "../../../src/protocol/documents/release.ts";
import { BASE, sharedReleases } from "../../support/installed-node.ts";
import { machineCopy, type MachineCopy } from "../../support/machine/machine-copy.ts";
import { releaseKey, smallRelease, type SmallRelease } from "../../support/upgrades/small-release.ts";
import { isDue } from "../../support/sample.ts";
import { memoryDir } from "../../support/temp-dir.ts";

const ARCHITECTURE = process.arch === "arm64" ? "arm64" : "amd64";
const FIRST = "20260101-000000.000000000000";
const SECOND = "20260202-000000.111111111111";
const THIRD = "20260303-000000.222222222222";

interface Stage {
  readonly given: string;
  readonly first: SmallRelease;
  readonly second: SmallRelease;
  readonly machine: MachineCopy;
}

async function staged(): Promise<Stage & AsyncDisposable> {
  const folder = memoryDir();
  const given = join(folder, "given");
  mkdirSync(given);
  const signer = await releaseKey(given);
  const first = await smallRelease(join(given, "first"), FIRST, signer, ARCHITECTURE);
  const second = await smallRelease(join(given, "second"), SECOND, signer, ARCHITECTURE);
  const machine = await machineCopy(folder, given);
  // The copy has nothing that Holdfast left on this machine.
  await machine.run("rm -rf /var/lib/holdfast*");
  return { given, first, second, machine, [Symbol.asyncDispose]: () => machine[Symbol.asyncDispose]() };
}

/** Files that a package manager and a database of users always keep. */
const KEPT =
  /^\/(?:etc\/(?:passwd|group|g?shadow|subuid|subgid)-?|etc\/\.pwd\.lock|var\/(?:lib\/(?:dpkg|apt)|cache|log)\/.*|tmp\/.*|etc\/ld\.so\.cache)$/;

const changedBy = async (machine: MachineCopy): Promise<readonly string[]> =>
  (await machine.changed()).filter((path) => !KEPT.test(path));

/** It reads this machine's lists for seconds, and then works like dpkg; the guide's machine, without lists, has it on all days. */
const NO_APT = "rm -f /usr/bin/apt-get";

/** systemctl(1) that records its calls, on a machine that looks as if systemd ran. */
const RUNNING = `mkdir -p /run/systemd/system; rm -f /usr/sbin/policy-rc.d
printf '#!/bin/sh\\necho "$*" >>/run/calls\\n' >/run/systemctl && chmod 755 /run/systemctl
mv /usr/bin/systemctl /usr/bin/systemctl.real && cp /run/systemctl /usr/bin/systemctl`;

describe.each([
  {
    kind: "the Debian package",
    before: isDue("an installation by apt-get") ? "true" : NO_APT,
    name: /\.deb: \d+ bytes, as/,
  },
  { kind: "the tarball", before: "mv /usr/bin/dpkg /usr/bin/no-dpkg", name: /\.tar\.xz: \d+ bytes, as/ },
])("$kind", ({ before, name }) => {
  it("is installed, again, replaced by a newer one, removed and purged", async () => {
    await using stage = await staged();
    const { machine } = stage;
    expect((await machine.run(before)).status).toBe(0);
    const untouched = await changedBy(machine);

    const dry = await machine.run("sh /given/first/install.sh --dry-run --profile agent");
    expect(dry).toMatchObject({ status: 0, output: expect.stringMatching(name) as string });
    expect(dry.output).toContain("would: ");
    expect(await changedBy(machine)).toEqual(untouched);

    const keep = `mkdir -p /etc/holdfast && printf '{ "unit": "x", "a": {"b": [1, "}"]} }' >/etc/holdfast/agent.json`;
    expect((await machine.run(keep)).status).toBe(0);
    const installed = await machine.run("sh /given/first/install.sh --profile agent");
    expect(installed, installed.output).toMatchObject({ status: 0 });
    expect((await machine.run("holdfast hello")).output).toBe("holdfast 0.1.20260101-0000 hello\n");
    const settings = JSON.parse((await machine.run("cat /etc/holdfast/agent.json")).output) as unknown;
    expect(settings).toEqual({ profile: "agent", unit: "x", a: { b: [1, "}"] } });
    expect((await machine.run("getent passwd holdfast-overlay && getent group holdfast")).status).toBe(0);
    const wants = "ls /etc/systemd/system/multi-user.target.wants | grep holdfast";
    expect((await machine.run(wants)).output).toBe("holdfast-agent.service\n");
    expect((await machine.run("stat -c %a:%U /usr/lib/holdfast/base/node")).output).toBe("755:root\n");

    const all = await machine.changed();
    const again = await machine.run("sh /given/first/install.sh");
    expect(again).toMatchObject({ status: 0, output: expect.stringContaining("is installed already") as string });
    expect(await machine.changed()).toEqual(all);
    await machine.run("sh /given/first/install.sh --profile appliance");
    expect((await machine.run("cat /etc/holdfast/agent.json")).output).toContain('"profile":"appliance"');

    await machine.run("systemctl disable holdfast-agent.service; echo kept >/var/lib/holdfast/state");
    const upgraded = await machine.run("sh /given/second/install.sh");
    expect(upgraded, upgraded.output).toMatchObject({ status: 0 });
    expect((await machine.run("holdfast")).output).toBe("holdfast 0.1.20260202-0000\n");
    expect((await machine.run(wants)).output).toBe("");
    const older = await machine.run("sh /given/first/install.sh");
    expect(older).toMatchObject({ status: 1, output: expect.stringContaining("which is newer than") as string });

    const removed = await machine.run("sh /given/second/install.sh --remove");
    expect(removed, removed.output).toMatchObject({ status: 0 });
    const left = (await changedBy(machine)).filter((path) => !untouched.includes(path));
    expect(left.sort()).toEqual([
      "/etc/holdfast/agent.json",
      "/etc/holdfast/agent.json.before",
      "/var/lib/holdfast/state",
    ]);
    expect((await machine.run("getent passwd holdfast-overlay || getent group holdfast")).status).not.toBe(0);
    expect((await machine.run("ls -d /usr/lib/holdfast /var/lib/holdfast-versions")).status).not.toBe(0);

    const purged = await machine.run("sh /given/second/install.sh --remove --purge");
    expect(purged, purged.output).toMatchObject({ status: 0 });
    expect(await changedBy(machine)).toEqual(untouched);
    expect((await machine.run("ls -d /etc/holdfast /var/lib/holdfast")).status).not.toBe(0);
    expect((await machine.run("sh /given/second/install.sh --remove")).output).toContain("nothing to remove");
  });

  it("starts its units once, and restarts only the agent when it is replaced", async () => {
    await using stage = await staged();
    const { machine, given } = stage;
    await smallRelease(join(given, "third"), THIRD, stage.second.signer, ARCHITECTURE);
    expect((await machine.run(`${before} && ${NO_APT} && ${RUNNING}`)).status).toBe(0);
    expect((await machine.run("sh /given/first/install.sh")).status).toBe(0);
    expect((await machine.run("cat /run/calls; rm /run/calls")).output).toBe(
      "daemon-reload\nenable --quiet holdfast-agent.service\nstart holdfast-agent.service\n",
    );
    expect((await machine.run("sh /given/second/install.sh")).status).toBe(0);
    expect((await machine.run("cat /run/calls; rm /run/calls")).output).toBe(
      "daemon-reload\ntry-restart holdfast-agent.service\ntry-restart holdfast-controller.service\n",
    );
    // Everything of the delayed restart except the wait.
    const later = `mkdir -p /var/lib/holdfast/desired && touch /var/lib/holdfast/desired/checkpoint.json
printf '#!/bin/sh\\nfor last; do :; done\\necho "$last" >/run/later\\n' >/usr/bin/systemd-run && chmod 755 /usr/bin/systemd-run`;
    expect((await machine.run(later)).status).toBe(0);
    const third = await machine.run("sh /given/third/install.sh");
    expect(third).toMatchObject({ status: 0, output: expect.stringContaining("is not confirmed yet, so") as string });
    expect((await machine.run("cat /run/calls; rm /run/calls")).output).toBe(
      "daemon-reload\nstop holdfast-restart.service\ntry-restart holdfast-controller.service\n",
    );
    const waiting = `printf '#!/bin/sh\\necho "sleep $*" >>/run/calls; rm /var/lib/holdfast/desired/checkpoint.json\\n' >/run/sleep
chmod 755 /run/sleep && PATH=/run:$PATH sh /run/later && cat /run/calls; rm /run/calls`;
    expect((await machine.run(waiting)).output).toBe("sleep 2\ntry-restart holdfast-agent.service\n");
    expect((await machine.run("sh /given/second/install.sh --remove")).status).toBe(0);
    expect((await machine.run("cat /run/calls")).output).toMatch(/^stop holdfast-\*\n(?:disable .*\n)+daemon-reload\n/);
  });
});

describe("an unverified package", () => {
  it("is refused, with the file's name, and nothing is installed", async () => {
    await using stage = await staged();
    const { given, first, machine } = stage;
    const folder = join(given, "tampered");
    const stranger = await releaseKey(given, "stranger.jwk");
    const deb = first.claims.packages?.[ARCHITECTURE];
    if (deb === undefined) throw new Error("no package");
    const read = (name: string): Buffer => readFileSync(join(folder, name));
    const edit = (name: string, change: (data: Buffer) => Buffer | string) => () =>
      writeFileSync(join(folder, name), change(read(name)));
    const flipped = (data: Buffer): Buffer => {
      data.writeUInt8(data.readUInt8(data.length >> 1) ^ 1, data.length >> 1);
      return data;
    };
    const signed = (change: Partial<ReleaseClaims>) => async () => {
      await first.write({ ...first.claims, ...change });
      copyFileSync(join(first.folder, "manifest.jws"), join(folder, "manifest.jws"));
      await first.write(first.claims);
    };
    const by = (signers: readonly (typeof stranger)[]) => async () => {
      await first.write(first.claims, signers);
      copyFileSync(join(first.folder, "manifest.jws"), join(folder, "manifest.jws"));
      await first.write(first.claims);
    };
    const text = (data: Buffer): string => data.toString().trim();
    const cases: readonly (readonly [string, () => void | Promise<void>, string])[] = [
      ["a flipped bit of the package", edit(deb.name, flipped), `${deb.name}: its SHA-256 is`],
      [
        "a longer package",
        edit(deb.name, (data) => Buffer.concat([data, Buffer.from("x")])),
        `${deb.name}: is ${deb.size + 1} bytes`,
      ],
      ["a shorter package", edit(deb.name, (data) => data.subarray(1)), `${deb.name}: is ${deb.size - 1} bytes`],
      [
        "a flipped signature",
        edit("manifest.jws", (data) => text(data).replace(/.{10}$/, "AAAAAAAAAA")),
        "manifest.jws: no signature",
      ],
      [
        "other claims",
        edit("manifest.jws", (data) => text(data).replace(/\.(.{40})/, `.${"A".repeat(40)}`)),
        "manifest.jws: no signature",
      ],
      ["another's key", by([stranger]), "manifest.jws: no signature"],
      ["no line", edit("manifest.jws", () => ""), "manifest.jws: no signature"],
      ["no JWS", edit("manifest.jws", () => "abc\n"), "manifest.jws: line 1 is no compact JWS"],
      ["four parts", edit("manifest.jws", (data) => `${text(data)}.a\n`), "manifest.jws: line 1 is no compact JWS"],
      [
        "a large manifest",
        edit("manifest.jws", (data) => `${text(data)}\n${"a".repeat(70_000)}\n`),
        "larger than 64 KiB",
      ],
      ["many lines", edit("manifest.jws", (data) => `${text(data)}\n`.repeat(17)), "more than 16 lines"],
      ["an expired release", signed({ exp: first.claims.iat + 1 }), "manifest.jws: expired at 2026-01-01"],
      ["a release of tomorrow", signed({ iat: 4_000_000_000, exp: 4_000_000_001 }), "set the clock"],
      ["another product", signed({ product: "other" as "holdfast" }), "manifest.jws: is of another product"],
      [
        "no package for here",
        signed({ files: {}, packages: {} }),
        `no package for this machine's architecture, ${ARCHITECTURE}`,
      ],
      ["a path", signed({ packages: { [ARCHITECTURE]: { ...deb, name: "../x.deb" } } }), "has no name"],
      [
        "a file that is not there",
        signed({ packages: { [ARCHITECTURE]: { ...deb, name: "x.deb" } } }),
        "x.deb: is not in",
      ],
    ];
    for (const [what, tamper, message] of cases) {
      cpSync(first.folder, folder, { recursive: true, force: true });
      await tamper();
      const { status, output } = await machine.run("sh /given/tampered/install.sh");
      expect(output, what).toContain(message);
      expect(status, what).toBe(1);
    }
    await by([first.signer])();
    const other = read("manifest.jws").toString();
    await signed({ build: SECOND })();
    writeFileSync(join(folder, "manifest.jws"), read("manifest.jws").toString() + other);
    expect((await machine.run("sh /given/tampered/install.sh")).output).toContain("two signed lines differ");
    // A second signature, with an unknown key, does no harm.
    await by([stranger, first.signer])();
    expect((await machine.run("sh /given/tampered/install.sh --dry-run")).status).toBe(0);
    expect(await machine.run("ls -d /usr/lib/holdfast")).toMatchObject({ status: 2 });
  });

  it("is not installed if the signature cannot be verified", async () => {
    await using stage = await staged();
    const { machine } = stage;
    await machine.run("mv /usr/bin/openssl /usr/bin/real-openssl");
    const none = await machine.run("sh /given/first/install.sh --dry-run");
    expect(none).toMatchObject({ status: 1, output: expect.stringContaining("openssl is missing") as string });
    await machine.run("printf '#!/bin/sh\\necho OpenSSL 1.1.1\\n' >/usr/bin/openssl; chmod 755 /usr/bin/openssl");
    const old = await machine.run("sh /given/first/install.sh --dry-run");
    expect(old).toMatchObject({
      status: 1,
      output: expect.stringContaining("(OpenSSL 1.1.1): 3.0 or later") as string,
    });
    await machine.run("mv /usr/bin/real-openssl /usr/bin/openssl");
    const unfilled = `sed "s/^release_keys=.*/release_keys=''/" /given/first/install.sh >/given/first/bare.sh; sh /given/first/bare.sh --dry-run`;
    expect((await machine.run(unfilled)).output).toContain("name one by --keys");
    expect((await machine.run("sh /given/first/bare.sh --dry-run --keys /given/key.jwk.pub")).status).toBe(0);
    const local =
      "mkdir -p /etc/holdfast; cp /given/key.jwk.pub /etc/holdfast/release-keys.json; sh /given/first/bare.sh --dry-run";
    expect((await machine.run(local)).status).toBe(0);
  });
});

it("is fetched from a URL", async () => {
  await using stage = await staged();
  const { first, machine } = stage;
  const server = createServer((request, response) => {
    try {
      response.end(readFileSync(join(first.folder, request.url?.slice("/r/".length) ?? "")));
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const { port } = server.address() as AddressInfo;
    expect((await machine.run(NO_APT)).status).toBe(0);
    const here = `http://127.0.0.1:${port}`;
    const fetched = await machine.run(`sh /given/first/install.sh --from ${here}/r/`);
    expect(fetched, fetched.output).toMatchObject({ status: 0 });
    expect((await machine.run("holdfast")).output).toContain("0.1.20260101-0000");
    const missing = await machine.run(`sh /given/first/install.sh --from ${here}/none`);
    expect(missing).toMatchObject({
      status: 1,
      output: expect.stringContaining("manifest.jws: cannot be fetched") as string,
    });
  } finally {
    server.close();
  }
});

it.each([
  ["--what", "--what is not known"],
  ["--profile server", "--profile is appliance or agent, not server"],
  ["--from", "--from needs a value"],
  ["--purge", "--purge goes with --remove"],
])("the installer refuses %s", (args, message) => {
  expect(() => execFileSync("sh", ["scripts/install.sh", ...args.split(" ")], { stdio: "pipe" })).toThrow(message);
});

it("a real build runs on a machine without Node", async () => {
  const folder = memoryDir();
  const given = join(await sharedReleases(), BASE);
  execFileSync("sha256sum", ["-c", "--quiet", "SHA256SUMS"], { cwd: given });
  await using machine = await machineCopy(folder, given);
  expect((await machine.run(NO_APT)).status).toBe(0);
  const installed = await machine.run("sh /given/install.sh");
  expect(installed, installed.output).toMatchObject({ status: 0 });
  const { output } = await machine.run("PATH=/usr/bin:/bin holdfast version");
  expect(output).toMatch(/^holdfast 0\.1\.0 \(20260101-000000\.ba5e\) on Node v26\./);
  expect(
    (await machine.run("grep -c '^holdfast\\|_holdfast' /usr/share/bash-completion/completions/holdfast")).status,
  ).toBe(0);
  expect((await machine.run("dpkg --verify holdfast")).output).toBe("");
}, 400_000);

// scripts/package refuses a larger one whenever a release is made.
it.runIf(isDue("a compressed package"))("a real build is small enough for a release once compressed", async () => {
  const tarball = join(await sharedReleases(), BASE, `holdfast-0.1.20260101-0000-linux-${ARCHITECTURE}.tar`);
  // Larger than xz makes it for a release, in a quarter of the time.
  const compressed = zstdCompressSync(readFileSync(tarball), { params: { [constants.ZSTD_c_compressionLevel]: 6 } });
  expect(compressed.length).toBeLessThanOrEqual(MAX_PACKAGE_BYTES);
});
