import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { beforeAll, describe, expect, test } from "vitest";
import { AgentError } from "../../../src/errors.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostDialler } from "../../../src/host/net/dial.ts";
import { hostDirectories } from "../../../src/host/files/directories.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { hostReleaseSource } from "../../../src/host/releases/release-source.ts";
import { hostVersions } from "../../../src/host/releases/versions.ts";
import { fetchRelease, type FetchDeps } from "../../../src/upgrade/fetch.ts";
import { rawMembers, rawTar, type RawEntry } from "../../support/data-store/raw-tar.ts";
import {
  claimsOf,
  GOOD_ENTRIES,
  headerText,
  hmacJws,
  NEW_VERSION,
  NOW,
  OWN,
  OWN_VERSION,
  rawJws,
  releaseKey,
  unpackedSizeOf,
  type Claims,
  type ReleaseKey,
} from "../../support/upgrades/release.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** A change of one part of a release. */
interface Tampering {
  readonly entries?: readonly RawEntry[];
  readonly name?: string;
  readonly tar?: (tar: Buffer) => Buffer;
  /** From the tar to the package. */
  readonly pack?: (tar: Buffer) => Buffer;
  readonly unpackedSize?: number;
  readonly claims?: (claims: Claims) => void;
  /** The manifest, from its claims as text. */
  readonly manifest?: (claims: string, keys: Keys) => string;
  /** The file in place of the signed package. */
  readonly served?: (archive: Buffer) => Buffer;
  /** Unix seconds. */
  readonly now?: number;
  readonly failed?: string;
}

interface Keys {
  readonly trusted: ReleaseKey;
  readonly second: ReleaseKey;
  readonly stranger: ReleaseKey;
}

let keys: Keys;
beforeAll(async () => {
  keys = { trusted: await releaseKey(), second: await releaseKey(), stranger: await releaseKey() };
});

const asText = (text: string): Buffer => Buffer.from(text, "latin1");
const xz = (bytes: Buffer): Buffer => execFileSync("xz", ["-1", "--stdout"], { input: bytes, maxBuffer: 1e9 });
const also = (...entries: RawEntry[]): { entries: readonly RawEntry[] } => ({ entries: [...GOOD_ENTRIES, ...entries] });
const without = (path: string): readonly RawEntry[] => GOOD_ENTRIES.filter((entry) => entry.path !== path);
const file = (claims: Claims): Record<string, unknown> => claims.files["amd64"] ?? {};
const withHeader =
  (changes: Record<string, unknown>) =>
  (claims: string, { trusted }: Keys): string =>
    rawJws(trusted, claims, headerText(trusted, changes));
const bomb = Buffer.alloc(64 * 1024 * 1024);
const bombed = { entries: [...GOOD_ENTRIES, { path: "./bomb", data: bomb }], unpackedSize: 1000 };
const elf = (machine: number): Buffer => {
  const header = Buffer.alloc(64);
  header.write("\x7fELF", "latin1");
  header.writeUInt16LE(machine, 18);
  return header;
};

const manifests: Readonly<Record<string, readonly [Tampering, string, RegExp]>> = {
  "a key nobody trusts": [
    { manifest: (claims, { stranger }) => rawJws(stranger, claims) },
    "manifest-unsigned",
    /unknown key/,
  ],
  "a stranger's signature under a trusted kid": [
    { manifest: (claims, { stranger, trusted }) => rawJws(stranger, claims, headerText(trusted)) },
    "manifest-unsigned",
    /does not verify/,
  ],
  "alg none": [{ manifest: withHeader({ alg: "none" }) }, "manifest-unsigned", /alg must be Ed25519/],
  "HS256 with the public key as its secret": [
    { manifest: (claims, { trusted }) => hmacJws(trusted, claims) },
    "manifest-unsigned",
    /alg must be Ed25519/,
  ],
  "another name of the algorithm": [
    { manifest: withHeader({ alg: "EdDSA" }) },
    "manifest-unsigned",
    /alg must be Ed25519/,
  ],
  "a typ of another purpose": [
    { manifest: withHeader({ typ: "holdfast-document+jwt" }) },
    "manifest-unsigned",
    /expected holdfast-release\+jwt/,
  ],
  "another kid": [
    { manifest: (claims, { trusted, stranger }) => rawJws(trusted, claims, headerText(stranger)) },
    "manifest-unsigned",
    /unknown key/,
  ],
  "a kid that is no text": [{ manifest: withHeader({ kid: 7 }) }, "manifest-unsigned", /kid must be text/],
  "a key that the header brings along": [
    { manifest: (claims, { stranger }) => rawJws(stranger, claims, headerText(stranger, { jwk: stranger.publicKey })) },
    "manifest-unsigned",
    /exactly alg, typ and kid/,
  ],
  "critical extensions": [{ manifest: withHeader({ crit: ["b64"] }) }, "manifest-unsigned", /exactly alg, typ and kid/],
  "claims of another release under the signature": [
    {
      manifest: (claims, { trusted }) => {
        const [header, , signature] = rawJws(trusted, claims).split(".");
        const other = Buffer.from(claims.replace(NEW_VERSION, "0.1.20261121-1200")).toString("base64url");
        return `${header}.${other}.${signature}`;
      },
    },
    "manifest-unsigned",
    /does not verify/,
  ],
  "a bit of the signature": [
    {
      manifest: (claims, { trusted }) =>
        rawJws(trusted, claims).replace(
          /\.(.)([^.]*)$/,
          (_, first: string, rest: string) => `.${first === "A" ? "B" : "A"}${rest}`,
        ),
    },
    "manifest-unsigned",
    /does not verify/,
  ],
  "a signature of nothing": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims).replace(/[^.]*$/, "") },
    "manifest-malformed",
    /line 1/,
  ],
  "cut short": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims).slice(0, -40) },
    "manifest-unsigned",
    /does not verify/,
  ],
  "nothing at all": [{ manifest: () => "" }, "manifest-malformed", /line 1/],
  "an extra line of something else": [
    { manifest: (claims, { trusted }) => `${rawJws(trusted, claims)}\n# signed by us` },
    "manifest-malformed",
    /line 2/,
  ],
  "an extra line of a trusted key that says otherwise": [
    {
      manifest: (claims, { trusted, second }) =>
        `${rawJws(trusted, claims)}\n${rawJws(second, claims.replace("0123456789ab", "ba9876543210"))}`,
    },
    "manifest-contradictory",
    /contradict each other/,
  ],
  "seventeen lines": [
    { manifest: (claims, { trusted }) => Array.from({ length: 17 }, () => rawJws(trusted, claims)).join("\n") },
    "manifest-malformed",
    /17 lines/,
  ],
  "64 KiB and one byte": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims).padEnd(64 * 1024 + 1, "A") },
    "too-large",
    /larger than 65536 bytes/,
  ],
  "a member twice in the claims": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims.replace("{", `{"version":"9.9.20261120-1200",`)) },
    "manifest-invalid",
    /members twice/,
  ],
  "a member twice in the header": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims, headerText(trusted).replace("{", `{"alg":"none",`)) },
    "manifest-invalid",
    /header .* members twice/,
  ],
  "blanks in the claims": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims.replace(",", ", ")) },
    "manifest-invalid",
    /blanks/,
  ],
  "claims that are no JSON": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims.slice(1)) },
    "manifest-invalid",
    /not JSON/,
  ],
  "a member named __proto__": [
    { manifest: (claims, { trusted }) => rawJws(trusted, claims.replace("{", `{"__proto__":{},`)) },
    "manifest-invalid",
    /__proto__/,
  ],
  "another product": [{ claims: (claims) => (claims["product"] = "holdout") }, "manifest-invalid", /product/],
  "a version that is a path": [
    { claims: (claims) => (claims["version"] = "../../etc") },
    "manifest-invalid",
    /version/,
  ],
  expired: [{ claims: (claims) => (claims["exp"] = NOW) }, "release-expired", /exp is 2026-11-21T12:00:00Z/],
  "issued in the future": [
    { claims: (claims) => (claims["iat"] = NOW + 61) },
    "release-from-future",
    /iat is 2026-11-21T12:01:01Z/,
  ],
  "expired before it was issued": [
    { claims: (claims) => (claims["exp"] = NOW - 3601) },
    "bad-lifetime",
    /not after iat/,
  ],
  "a clock before our own build": [{ now: NOW - 90 * 86_400 }, "clock-before-build", /before this version was built/],
  older: [
    { claims: (claims) => (claims["version"] = "0.1.20261031-1200") },
    "not-newer",
    /older than 0.1.20261101-1200/,
  ],
  "the version that runs": [
    { claims: (claims) => (claims["version"] = OWN_VERSION) },
    "same-version",
    /already running/,
  ],
  "only for newer ones": [
    { claims: (claims) => (claims["minVersion"] = "0.1.20261110-1200") },
    "below-min-version",
    /minVersion is 0.1.20261110-1200/,
  ],
  "given up before": [
    { failed: "it never reached its control plane" },
    "failed-before",
    /it never reached its control plane/,
  ],
  "nothing for this architecture": [
    { claims: (claims) => (claims.files = { arm64: file(claims) }) },
    "wrong-architecture",
    /none for amd64, only: arm64/,
  ],
  "another architecture's file under this one": [
    { claims: (claims) => (claims.files["arm64"] = { ...file(claims), name: "arm64.tar" }) },
    "ambiguous-file",
    /for amd64 and for arm64/,
  ],
  "a path for an architecture": [
    { claims: (claims) => (claims.files["../mips"] = file(claims)) },
    "manifest-invalid",
    /files.*mips|mips/,
  ],
  "a name with a path": [
    { claims: (claims) => (file(claims)["name"] = "../holdfast.tar") },
    "manifest-invalid",
    /files\.amd64\.name/,
  ],
  "a name that begins with a dot": [
    { claims: (claims) => (file(claims)["name"] = ".tar") },
    "manifest-invalid",
    /plain file name/,
  ],
  "a name that says nothing of its packing": [{ name: "holdfast.zip" }, "unknown-packing", /holdfast\.zip/],
  "a size of nothing": [{ claims: (claims) => (file(claims)["size"] = 0) }, "manifest-invalid", /files\.amd64\.size/],
  "a hash that is none": [
    { claims: (claims) => (file(claims)["sha256"] = "f".repeat(63)) },
    "manifest-invalid",
    /sha256/,
  ],
  "a size off by one": [
    { claims: (claims) => (file(claims)["size"] = Number(file(claims)["size"]) + 1) },
    "size-mismatch",
    /has \d+ bytes, but the manifest says \d+/,
  ],
  "the hash of something else": [
    { claims: (claims) => (file(claims)["sha256"] = "0".repeat(64)) },
    "hash-mismatch",
    /but the manifest says 0000/,
  ],
};

const payloads: Readonly<Record<string, readonly [Tampering, string, RegExp]>> = {
  "a bit of the package": [
    { served: (archive) => archive.map((byte, at) => (at === 600 ? byte ^ 1 : byte)) as Buffer },
    "hash-mismatch",
    /SHA-256/,
  ],
  "the package cut short": [{ served: (archive) => archive.subarray(0, -512) }, "size-mismatch", /bytes/],
  "something behind the package": [
    { served: (archive) => Buffer.concat([archive, asText("x")]) },
    "size-mismatch",
    /bytes/,
  ],
  "another package as long": [{ served: (archive) => Buffer.alloc(archive.length, 7) }, "hash-mismatch", /SHA-256/],
  "a symbolic link": [
    also({ path: "./passwd", type: "2", link: "/etc/passwd" }),
    "archive-member-kind",
    /a symbolic link/,
  ],
  "a hard link": [also({ path: "./shadow", type: "1", link: "/etc/shadow" }), "archive-member-kind", /a hard link/],
  "a character device": [also({ path: "./null", type: "3" }), "archive-member-kind", /a character device/],
  "a block device": [also({ path: "./sda", type: "4" }), "archive-member-kind", /a block device/],
  "a pipe": [also({ path: "./pipe", type: "6" }), "archive-member-kind", /a pipe/],
  "a kind nobody knows": [also({ path: "./what", type: "Z" }), "archive-member-kind", /unknown kind/],
  "a way out": [also({ path: "./../../etc/cron.d/x", data: "x" }), "archive-parent", /leads out/],
  "a way out by the prefix": [also({ path: "x", prefix: "..", data: "x" }), "archive-parent", /leads out/],
  "a way out in the middle": [also({ path: "licences/../../x", data: "x" }), "archive-parent", /leads out/],
  "an absolute name": [also({ path: "/etc/cron.d/x", data: "x" }), "archive-absolute", /absolute/],
  "set-user-ID": [also({ path: "./su", data: "x", mode: 0o4755 }), "archive-set-id", /4755/],
  "set-group-ID on a directory": [also({ path: "./sg/", mode: 0o2755 }), "archive-set-id", /2755/],
  "a sticky file": [also({ path: "./t", data: "x", mode: 0o1755 }), "archive-set-id", /1755/],
  "a pax header that renames what follows": [
    also({ path: "./PaxHeaders/x", type: "x", data: "20 path=/etc/passwd\n" }, { path: "./x", data: "x" }),
    "archive-member-kind",
    /a pax header/,
  ],
  "a pax header for all": [
    also({ path: "./g", type: "g", data: "12 uid=1000\n" }),
    "archive-member-kind",
    /for all members/,
  ],
  "a long name of GNU tar": [
    also({ path: "././@LongLink", type: "L", data: "/etc/passwd\0" }, { path: "./x", data: "x" }),
    "archive-member-kind",
    /a long name/,
  ],
  "a sparse file": [also({ path: "./sparse", type: "S" }), "archive-member-kind", /a sparse file/],
  "a second member of one name": [
    also({ path: "./node", data: "evil", mode: 0o755 }),
    "archive-duplicate",
    /"node" twice/,
  ],
  "one name written in two ways": [
    also({ path: "node", data: "evil", mode: 0o755 }),
    "archive-duplicate",
    /"node" twice/,
  ],
  "a file below a file": [also({ path: "./node/x", data: "x" }), "archive-duplicate", /below what is a file/],
  "a file in place of a directory": [
    also({ path: "a/b", data: "x" }, { path: "a", data: "x" }),
    "archive-duplicate",
    /as a directory/,
  ],
  "a name with a line break": [also({ path: "./a\nb", data: "x" }), "archive-name", /not a plain one/],
  "a name that is hidden": [also({ path: "./.bashrc", data: "x" }), "archive-name", /not a plain one/],
  "something behind the end of a name": [
    also({ path: "./a", data: "x", patch: (header) => header.write("evil", 50) }),
    "archive-name",
    /behind its end/,
  ],
  "a size that is not in octal digits": [
    also({ path: "./big", patch: (header) => header.write("\x80\0\0\0\0\0\0\0\0\0\x10\0", 124, "latin1") }),
    "archive-number",
    /octal/,
  ],
  "a wrong checksum": [also({ path: "./a", spoil: (header) => header.write("b", 2) }), "archive-damaged", /checksum/],
  "a header of before ustar": [
    also({ path: "./a", patch: (header) => header.fill(0, 257, 265) }),
    "archive-form",
    /ustar/,
  ],
  "something in the filling": [
    also({ path: "./a", data: "x", filler: 65 }),
    "archive-hidden-data",
    /between its members/,
  ],
  "no end": [{ tar: (tar) => tar.subarray(0, -1024) }, "archive-truncated", /before its end/],
  "a member behind the end": [
    { tar: (tar) => Buffer.concat([tar, rawMembers([{ path: "evil", data: "x" }])]) },
    "archive-trailing-data",
    /behind its end/,
  ],
  "something behind the end": [
    { tar: (tar) => Buffer.concat([tar, Buffer.alloc(512, 65)]) },
    "archive-trailing-data",
    /behind its end/,
  ],
  "blanks behind the end without end": [
    { tar: (tar) => Buffer.concat([tar, Buffer.alloc(2 * 1024 * 1024)]), name: "holdfast.tar.gz", pack: gzipSync },
    "archive-trailing-data",
    /behind its end/,
  ],
  "more than it says it takes": [
    { unpackedSize: unpackedSizeOf(GOOD_ENTRIES) - 1 },
    "archive-too-large",
    /unpackedSize/,
  ],
  "a bomb of gzip": [
    { ...bombed, name: "holdfast.tar.gz", pack: gzipSync },
    "archive-too-large",
    /unpackedSize at "bomb"/,
  ],
  "a bomb of xz": [{ ...bombed, name: "holdfast.tar.xz", pack: xz }, "archive-too-large", /unpackedSize at "bomb"/],
  "a bomb of zstd": [
    { ...bombed, name: "holdfast.tar.zst", pack: zstdCompressSync },
    "archive-too-large",
    /unpackedSize at "bomb"/,
  ],
  "three thousand empty files": [
    also(...Array.from({ length: 3000 }, (_, number) => ({ path: `./licences/${number}`, data: "" }))),
    "archive-too-many",
    /more than 2000/,
  ],
  "gzip with something behind it": [
    { name: "holdfast.tar.gz", pack: (tar) => Buffer.concat([gzipSync(tar), asText("evil")]) },
    "archive-damaged",
    /cannot be unpacked/,
  ],
  "xz with something behind it": [
    { name: "holdfast.tar.xz", pack: (tar) => Buffer.concat([xz(tar), asText("evil")]) },
    "archive-damaged",
    /xz/,
  ],
  "zstd with something behind it": [
    { name: "holdfast.tar.zst", pack: (tar) => Buffer.concat([zstdCompressSync(tar), asText("evil")]) },
    "archive-trailing-data",
    /after its end/,
  ],
  "xz that is none": [{ name: "holdfast.tar.xz", pack: (tar) => tar }, "archive-damaged", /xz/],
  "gzip that was cut": [
    { name: "holdfast.tar.gz", pack: (tar) => gzipSync(tar).subarray(0, -20) },
    "archive-damaged",
    /cannot be unpacked/,
  ],
  "no runtime": [{ entries: without("./node") }, "archive-incomplete", /does not contain node/],
  "an empty program": [
    { entries: [...without("./holdfast.mjs"), { path: "./holdfast.mjs" }] },
    "archive-incomplete",
    /does not contain holdfast\.mjs/,
  ],
  "another version inside": [
    { entries: [...without("./version"), { path: "./version", data: `${OWN_VERSION}\n` }] },
    "archive-version",
    /0\.1\.20261101-1200/,
  ],
  "a runtime of another machine": [
    { entries: [...without("./node"), { path: "./node", data: elf(183), mode: 0o755 }] },
    "archive-architecture",
    /not for amd64/,
  ],
};

describe.each([
  ["the manifest", manifests],
  ["the package", payloads],
])("tampering with %s", (_, table) => {
  test.each(Object.entries(table))("%s", async (_name, [tampering, code, message]) => {
    const stage = writeTampered(tampering);
    const error = await fetchRelease(stage.request, stage.deps, AbortSignal.timeout(120_000)).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(AgentError);
    expect((error as AgentError).code).toBe(code);
    expect((error as AgentError).message).toMatch(message);
    expect(stage.left()).toEqual([]);
  });
});

test("there are more than forty relevant ones of each kind", () => {
  expect(Object.keys({ ...manifests, ...payloads }).length).toBeGreaterThan(80);
});

test.each([
  ["holdfast.tar", (tar: Buffer) => tar],
  ["holdfast.tar.gz", gzipSync],
  ["holdfast.tar.xz", xz],
  ["holdfast.tar.zst", zstdCompressSync],
])("stages unchanged files: %s", async (name, pack) => {
  const stage = writeTampered({
    name,
    pack,
    entries: [...without("./node"), { path: "./node", data: elf(62), mode: 0o700 }],
  });
  expect(await fetchRelease(stage.request, stage.deps, AbortSignal.timeout(120_000))).toEqual({
    version: NEW_VERSION,
    build: "20261120-120000.0123456789ab",
  });
  expect(stage.left()).toEqual([`part/${NEW_VERSION}.ready`, `part/${NEW_VERSION}.sha256`]);
});

test("a line of an unknown key does no harm beside a trusted one", async () => {
  const stage = writeTampered({
    manifest: (claims, { trusted, second, stranger }) =>
      [rawJws(stranger, "{}"), rawJws(second, claims), rawJws(trusted, claims), ""].join("\n"),
  });
  await fetchRelease(stage.request, stage.deps, AbortSignal.timeout(120_000));
  expect(stage.left()).toEqual([`part/${NEW_VERSION}.ready`, `part/${NEW_VERSION}.sha256`]);
});

test("an operator may force a version that failed, or is older, and nothing else", async () => {
  const outcome = async (tampering: Tampering, by: "operator" | "control-plane"): Promise<string> => {
    const stage = writeTampered(tampering);
    return fetchRelease({ ...stage.request, by, isForced: true }, stage.deps, AbortSignal.timeout(120_000)).then(
      ({ version }) => version,
      (error: unknown) => (error as AgentError).code,
    );
  };
  const older = "0.1.20261031-1200";
  const entries = [...without("./version"), { path: "./version", data: older }];
  const goingBack: Tampering = { entries, claims: (claims) => (claims["version"] = older) };
  expect(await outcome(goingBack, "operator")).toBe(older);
  expect(await outcome(goingBack, "control-plane")).toBe("not-newer");
  expect(await outcome({ failed: "no" }, "operator")).toBe(NEW_VERSION);
  expect(await outcome({ failed: "no" }, "control-plane")).toBe("failed-before");
  expect(await outcome({ claims: (claims) => (claims["exp"] = NOW) }, "operator")).toBe("release-expired");
  expect(await outcome({ now: NOW - 90 * 86_400 }, "operator")).toBe("clock-before-build");
});

test("refuses a package older than that of the package manager, since it is never picked", async () => {
  const stage = writeTampered({ claims: (claims) => (claims["version"] = "0.1.20261031-1200") });
  mkdirSync(join(stage.dir, "lib", "base"), { recursive: true });
  writeFileSync(join(stage.dir, "lib", "base", "version"), "0.1.20261031-1300\n");
  const fetching = fetchRelease({ ...stage.request, isForced: true }, stage.deps, AbortSignal.timeout(120_000));
  await expect(fetching).rejects.toMatchObject({ code: "older-than-package" });
});

test("keys of the machine's owner replace the package's, and are required when unreadable", async () => {
  const stage = writeTampered({});
  const [own = "", packaged = ""] = ["own.json", "packaged.json"].map((name) => join(stage.dir, name));
  writeFileSync(packaged, JSON.stringify({ keys: [keys.trusted.publicKey] }));
  const fetched = (): Promise<unknown> =>
    fetchRelease(stage.request, { ...stage.deps, keyPaths: [own, packaged] }, AbortSignal.timeout(120_000));
  writeFileSync(own, "{}");
  await expect(fetched()).rejects.toMatchObject({ code: "bad-release-keys" });
  writeFileSync(own, JSON.stringify({ keys: [keys.stranger.publicKey] }));
  await expect(fetched()).rejects.toMatchObject({ code: "manifest-unsigned" });
  const nowhere = { ...stage.deps, keyPaths: [join(stage.dir, "none.json")] };
  await expect(fetchRelease(stage.request, nowhere, AbortSignal.timeout(120_000))).rejects.toMatchObject({
    code: "bad-release-keys",
  });
});

test("unknown fields of later versions do not prevent an upgrade", async () => {
  const stage = writeTampered({
    claims: (claims) => {
      claims["channel"] = "beta";
      claims.files["riscv64"] = { ...file(claims), name: "holdfast-riscv64.tar", sha256: "0".repeat(64) };
      file(claims)["notes"] = "none";
    },
  });
  const fetched = await fetchRelease(stage.request, stage.deps, AbortSignal.timeout(120_000));
  expect(fetched).toMatchObject({ version: NEW_VERSION });
});

test("remembers a version that fails its own test, with the check's name", async () => {
  const stage = writeTampered({});
  const selfTester = { run: async () => ({ is: "failed" as const, check: "ffi", message: "no library" }) };
  const fetching = fetchRelease(stage.request, { ...stage.deps, selfTester }, AbortSignal.timeout(120_000));
  await expect(fetching).rejects.toMatchObject({ code: "self-test-failed", details: { check: "ffi" } });
  expect(await stage.deps.versions.list()).toMatchObject([
    { version: NEW_VERSION, isWhole: false, failed: { code: "self-test-failed", message: /ffi: no library/ } },
  ]);
  await expect(fetchRelease(stage.request, stage.deps, AbortSignal.timeout(120_000))).rejects.toMatchObject({
    code: "failed-before",
  });
});

interface Stage {
  readonly dir: string;
  readonly request: Parameters<typeof fetchRelease>[0];
  readonly deps: FetchDeps;
  /** Returns everything that is a version, or may become one. */
  left(): readonly string[];
}

function writeTampered(tampering: Tampering): Stage {
  const dir = tempDir();
  const { entries = GOOD_ENTRIES, name = "holdfast.tar", tar = (bytes) => bytes, pack = (bytes) => bytes } = tampering;
  const archive = pack(tar(rawTar(entries)));
  const claims = claimsOf(archive, name, tampering.unpackedSize ?? unpackedSizeOf(entries));
  tampering.claims?.(claims);
  const manifest = tampering.manifest ?? ((text) => rawJws(keys.trusted, text));
  writeFileSync(join(dir, "manifest.jws"), manifest(JSON.stringify(claims), keys));
  writeFileSync(join(dir, name), tampering.served?.(archive) ?? archive);
  writeFileSync(join(dir, "keys.json"), JSON.stringify({ keys: [keys.trusted.publicKey, keys.second.publicKey] }));
  const path = join(dir, "versions");
  const clock = { ...systemClock(), now: () => (tampering.now ?? NOW) * 1000 };
  const files = hostFiles();
  const signal = AbortSignal.timeout(120_000);
  const versions = hostVersions({ packagePath: join(dir, "lib"), path, files, directories: hostDirectories(), signal });
  mkdirSync(path);
  if (tampering.failed !== undefined) {
    writeFileSync(join(path, `${NEW_VERSION}.failed`), tampering.failed);
  }
  return {
    dir,
    request: { from: join(dir, "manifest.jws"), by: "operator", isForced: false },
    deps: {
      clock,
      files,
      versions,
      source: hostReleaseSource({ dialler: hostDialler(clock, { noProxy: [] }), clock, controlPlane: undefined }),
      selfTester: { run: async () => ({ is: "passed" }) },
      keyPaths: [join(dir, "keys.json")],
      own: OWN,
      architecture: "amd64",
      random: () => 0,
      onStep: () => undefined,
    },
    left: () =>
      readdirSync(path, { recursive: true, encoding: "utf8" }).filter(
        (name) => !/^part$|\.tar\.[a-z]+(?:\.from)?$|\.failed$/.test(name) && !name.includes(".ready/"),
      ),
  };
}
