import { createHash, randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { CreateBucketCommand, GetObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { DataStoreTasks, TaskStarted, type DataStoreTask } from "../../../src/protocol/triggers/data-store.ts";
import type { S3Access } from "../../../src/protocol/triggers/transfer.ts";
import { testCertificate, type TestCertificate } from "../../support/certificates.ts";
import { startConnectProxy } from "../../support/control-plane/connect-proxy.ts";
import { freePort, registerNode, startAgent, startController } from "../../support/machine/programs.ts";
import {
  credentialsFile,
  s3Job,
  startTransfer,
  transferHere,
  type S3JobOptions,
} from "../../support/data-store/s3-transfer.ts";
import { startSwift, type SwiftServer } from "../../support/data-store/swift.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { startTlsFront } from "../../support/control-plane/tls-front.ts";
import { waitFor } from "../../support/wait-for.ts";

const BUCKET = "holdfast-tls";
/** Two parts, the last one shorter. */
const LARGE = randomBytes(16 * 1024 * 1024 + 12_345);
const SMALL = randomBytes(300 * 1024);

let swift: SwiftServer;
let client: S3Client;
let base: string;
let root: string;
let good: string;
let authority: TestCertificate;
/** The file of the authority that signed the store's certificate. */
let trusting: Readonly<Record<string, string>>;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), "hf-s3-tls-"));
  swift = await startSwift(join(base, "swift"));
  const { accessKeyId, secretAccessKey, region, endpoint } = swift;
  const credentials = { accessKeyId, secretAccessKey };
  client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
  good = credentialsFile(base, credentials);
  authority = await testCertificate({ hosts: [], isAuthority: true });
  const path = join(base, "authority.pem");
  writeFileSync(path, authority.cert);
  trusting = { NODE_EXTRA_CA_CERTS: path };
});

afterAll(async () => {
  client.destroy();
  await swift.stop();
  rmSync(base, { recursive: true, force: true });
});

beforeEach(() => {
  root = join(tempDir(), "store");
  mkdirSync(join(root, "images"), { recursive: true });
  writeFileSync(join(root, "images/disk.img"), LARGE);
});

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

const access = (endpoint: string, more: Partial<S3Access> = {}): S3Access => ({
  endpoint,
  region: swift.region,
  pathStyle: true,
  credentials: good,
  ...more,
});

const jobOf = (
  kind: S3JobOptions["kind"],
  key: string,
  where: S3Access,
  file = "images/disk.img",
): ReturnType<typeof s3Job> => s3Job({ kind, root, access: where, bucket: BUCKET, key, file });

/** The store with a certificate for these names, by the authority by default. */
async function front(
  hosts: readonly string[],
  more: { readonly issuer?: TestCertificate; readonly isExpired?: boolean } = {},
) {
  return startTlsFront(await testCertificate({ hosts, issuer: authority, ...more }), swift.port);
}

/** Makes this process trust the authority until the test ends, as its file does for a program of its own. */
function trustHere(): void {
  const before = getCACertificates("default");
  setDefaultCACertificates([...before, authority.cert]);
  onTestFinished(() => setDefaultCACertificates(before));
}

async function fetched(key: string): Promise<string> {
  const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: key }));
  return hashOf((await Body?.transformToByteArray()) ?? new Uint8Array());
}

test("an object is uploaded and downloaded over TLS if the authority is in the file of trusted ones", async () => {
  const store = await front(["127.0.0.1"]);
  const where = access(`https://127.0.0.1:${store.port}`);
  const done = { is: "done", bytes: LARGE.length };
  expect(await startTransfer(jobOf("s3-upload", "by-path.img", where), trusting).ended).toEqual(done);
  expect(await fetched("by-path.img")).toBe(hashOf(LARGE));
  const down = startTransfer(jobOf("s3-download", "by-path.img", where, "images/copy.img"), trusting);
  expect(await down.ended).toEqual(done);
  expect(hashOf(readFileSync(join(root, "images/copy.img")))).toBe(hashOf(LARGE));
  expect(store.passed()).toBeGreaterThan(0);
  // An address is not a server name.
  expect(new Set(store.requested)).toEqual(new Set([undefined]));
});

test("the certificate must be for a bucket in the host name, also behind a proxy", async () => {
  const store = await front(["*.s3.test"]);
  const proxy = await startConnectProxy(store.port);
  const proxies = { https: proxy.url, noProxy: [] };
  const where = access(`https://s3.test:${swift.port}`, { pathStyle: false });
  const done = { is: "done", bytes: LARGE.length };
  const up = { ...jobOf("s3-upload", "by-host.img", where), proxies };
  trustHere();
  expect(await transferHere(up).ended).toEqual(done);
  const down = { ...jobOf("s3-download", "by-host.img", where, "images/copy.img"), proxies };
  expect(await transferHere(down).ended).toEqual(done);
  expect(hashOf(readFileSync(join(root, "images/copy.img")))).toBe(hashOf(LARGE));
  expect(new Set(store.requested)).toEqual(new Set([`${BUCKET}.s3.test`]));
  expect(new Set(proxy.requests)).toEqual(new Set([`${BUCKET}.s3.test:${swift.port}`]));
});

test.each([
  [
    "of an authority that is not trusted",
    ["127.0.0.1"],
    {},
    false,
    /^TLS with 127\.0\.0\.1: no trusted authority signed its certificate \(UNABLE_TO_[A-Z_]+\)$/,
  ],
  ["for another host", ["192.0.2.1"], {}, true, /^TLS with 127\.0\.0\.1: .*not in the cert's list/],
  ["that has expired", ["127.0.0.1"], { isExpired: true }, true, /^TLS with 127\.0\.0\.1: certificate has expired$/],
] as const)("refuses a certificate %s at once, before any request", async (_, hosts, more, isTrusted, reason) => {
  if (isTrusted) trustHere();
  const store = await front(hosts, more);
  const refused = async (kind: "s3-download" | "s3-upload"): Promise<void> => {
    const job = jobOf(kind, "refused.img", access(`https://127.0.0.1:${store.port}`), `images/${kind}.img`);
    if (kind === "s3-upload") writeFileSync(join(root, "images/s3-upload.img"), "x");
    const running = transferHere(job);
    const message = expect.stringMatching(reason) as string;
    expect(await running.ended).toEqual({ is: "failed", code: "tls-untrusted", message });
    expect(running.events.filter(({ is }) => is === "retry")).toEqual([]);
    expect(running.output()).not.toContain(swift.secretAccessKey);
  };
  await Promise.all([refused("s3-download"), refused("s3-upload")]);
  expect(store.passed()).toBe(0);
  expect(readdirSync(join(root, "images")).sort()).toEqual(["disk.img", "s3-upload.img"]);
});

test("an agent passes the file of its environment to its transfers, and reports its lack", async () => {
  const store = await front(["127.0.0.1"]);
  const dir = tempDir();
  const config = join(dir, "agent.json");
  const endpoint = `https://127.0.0.1:${store.port}`;
  const s3 = [{ bucket: BUCKET, endpoint, region: swift.region, pathStyle: true, credentials: good }];
  writeFileSync(config, JSON.stringify({ dataStore: { s3, reservePercent: 0 } }));
  const controller = await startController(dir, await freePort());
  const { NODE_EXTRA_CA_CERTS: _, ...plain } = process.env;
  const start = (env: NodeJS.ProcessEnv) => startAgent(join(dir, "node"), { env, more: ["--config", config] });
  const first = await start(plain);
  const uid = await registerNode(controller, first, "edge");
  const call = (method: string, path: string, body?: unknown) =>
    controller.call(method, `/v2/node/${uid}/data-store${path}`, body);
  const ended = async (path: string, body: object): Promise<DataStoreTask> => {
    const { id } = TaskStarted.parse((await call("POST", path, body)).body);
    return waitFor(`the task ${id} to end`, async () => {
      const { tasks } = DataStoreTasks.parse((await call("GET", "/tasks")).body);
      return tasks.find((task) => task.id === id && !["Pending", "Running"].includes(task.status));
    });
  };
  await call("POST", "/mkdir", { filename: "isos" });
  writeFileSync(join(first.stateDir, "data-store/isos/a.iso"), SMALL);
  const upload = { filePath: "isos/a.iso", bucketDest: `s3://${BUCKET}/agent.iso` };
  const refused = await ended("/s3-upload", upload);
  expect(refused).toMatchObject({ status: "Failed", details: expect.stringContaining("TLS with 127.0.0.1") as string });
  expect(store.passed()).toBe(0);

  await first.end();
  const second = await start({ ...plain, ...trusting });
  await waitFor("the node to be online", async () => (await call("GET", "/tasks")).status === 200);
  expect(await ended("/s3-upload", upload)).toMatchObject({ status: "Completed" });
  expect(await fetched("agent.iso")).toBe(hashOf(SMALL));
  const download = { uri: `s3://${BUCKET}/agent.iso`, location: "isos/copy.iso" };
  expect(await ended("/s3-download", download)).toMatchObject({ status: "Completed" });
  expect(hashOf(readFileSync(join(second.stateDir, "data-store/isos/copy.iso")))).toBe(hashOf(SMALL));
});
