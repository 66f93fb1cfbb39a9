import { createHash, randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CreateBucketCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  PutObjectCommand,
  S3Client,
} from "@aws-sdk/client-s3";
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import type { S3Access } from "../../../src/protocol/triggers/transfer.ts";
import { startConnectProxy } from "../../support/control-plane/connect-proxy.ts";
import { startFront, type PassedRequest, type S3Front } from "../../support/data-store/s3-front.ts";
import {
  credentialsFile,
  s3Job,
  startTransfer,
  transferHere,
  type S3JobOptions,
} from "../../support/data-store/s3-transfer.ts";
import { startSwift, type SwiftServer } from "../../support/data-store/swift.ts";
import { isDue } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

const MIB = 1024 * 1024;
const BUCKET = "holdfast-test";
const SMALL = randomBytes(300 * 1024);
/** Two parts, the last one shorter. */
const LARGE = randomBytes(16 * MIB + 12_345);
const THREE_PARTS = randomBytes(32 * MIB + 12_345);

let swift: SwiftServer;
let client: S3Client;
let base: string;
let root: string;
let good: string;

beforeAll(async () => {
  base = mkdtempSync(join(tmpdir(), "hf-s3-"));
  swift = await startSwift(join(base, "swift"));
  const { accessKeyId, secretAccessKey, region, endpoint } = swift;
  const credentials = { accessKeyId, secretAccessKey };
  client = new S3Client({
    endpoint,
    region,
    credentials,
    forcePathStyle: true,
    requestChecksumCalculation: "WHEN_REQUIRED",
  });
  await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
  good = credentialsFile(base, credentials);
});

afterAll(async () => {
  client.destroy();
  await swift.stop();
  rmSync(base, { recursive: true, force: true });
});

beforeEach(() => {
  root = join(tempDir(), "store");
  mkdirSync(join(root, "images"), { recursive: true });
});

const access = (more: Partial<S3Access> = {}): S3Access => ({
  endpoint: swift.endpoint,
  region: swift.region,
  pathStyle: true,
  credentials: good,
  ...more,
});

type Options = Partial<S3JobOptions> & Pick<S3JobOptions, "key">;
const common = { bucket: BUCKET, file: "images/disk.img" } as const;
const download = (options: Options): ReturnType<typeof s3Job> =>
  s3Job({ kind: "s3-download", root, access: access(), ...common, ...options });
const upload = (options: Options): ReturnType<typeof s3Job> =>
  s3Job({ kind: "s3-upload", root, access: access(), ...common, ...options });

const stored = (key: string, bytes: Uint8Array): Promise<unknown> =>
  client.send(new PutObjectCommand({ Bucket: BUCKET, Key: key, Body: bytes }));

async function fetched(key: string): Promise<string> {
  const { Body } = await client.send(new GetObjectCommand({ Bucket: BUCKET, Key: key }));
  return hashOf((await Body?.transformToByteArray()) ?? new Uint8Array());
}

async function uploads(): Promise<readonly (string | undefined)[]> {
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket: BUCKET }));
  return Uploads.map(({ Key }) => Key);
}

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const fileHash = (name: string): string => hashOf(readFileSync(join(root, name)));
const put = (bytes: Uint8Array): void => writeFileSync(join(root, common.file), bytes);
const leftIn = (directory: string): readonly string[] => readdirSync(join(root, directory));

async function front(): Promise<S3Front & { readonly access: S3Access }> {
  const started = await startFront(swift.port);
  onTestFinished(() => started.close());
  return Object.assign(started, { access: access({ endpoint: `http://127.0.0.1:${started.port}` }) });
}

test.each([
  ["a small object", SMALL, startTransfer],
  ["an object of several parts", LARGE, transferHere],
  ["an empty object", Buffer.alloc(0), transferHere],
])("%s is uploaded and downloaded unchanged, by path", async (name, bytes, start) => {
  const key = `by path/${name}/ü+&?=.img`;
  put(bytes);
  expect(await start(upload({ key })).ended).toEqual({ is: "done", bytes: bytes.length });
  expect(await fetched(key)).toBe(hashOf(bytes));
  const copy = "images/new/copy.img";
  expect(await start(download({ key, file: copy })).ended).toEqual({ is: "done", bytes: bytes.length });
  expect(fileHash(copy)).toBe(hashOf(bytes));
  expect(leftIn("images/new")).toEqual(["copy.img"]);
});

test.runIf(isDue("bucket in host"))(
  "puts a bucket in the host name if the endpoint requires it, and reaches it through a proxy",
  async () => {
    const virtual = access({ endpoint: swift.hostEndpoint, pathStyle: false });
    // Only the proxy resolves the name.
    const proxy = await startConnectProxy(swift.port);
    const proxies = { http: proxy.url, noProxy: [] };
    put(LARGE);
    const options = { key: "by-host.img", access: virtual };
    const up = transferHere({ ...upload(options), proxies });
    expect(await up.ended).toEqual({ is: "done", bytes: LARGE.length });
    const down = transferHere({ ...download({ ...options, file: "images/copy.img" }), proxies });
    expect(await down.ended).toEqual({ is: "done", bytes: LARGE.length });
    expect(fileHash("images/copy.img")).toBe(hashOf(LARGE));
    expect(new Set(proxy.requests)).toEqual(new Set([`${BUCKET}.s3.test:${swift.port}`]));
  },
);

test("finds the bucket's region without a configured one", async () => {
  await stored("region.img", SMALL);
  const { region: _, ...anywhere } = access();
  const job = download({ key: "region.img", access: anywhere });
  expect(await transferHere(job).ended).toEqual({ is: "done", bytes: SMALL.length });
});

test("a killed download resumes where it was, and fetches only the rest", async () => {
  await stored("resumed.img", LARGE);
  const before = await front();
  let first = 0;
  // The second part is withheld, so that the partial file ends with the first.
  before.fault = ({ headers }) => (headers.range?.startsWith("bytes=0-") === true || first > 0 ? undefined : "hold");
  const id = "5a7d1b52-6a37-4bb0-9a5e-0d9d0c6c2b11";
  const job = download({ key: "resumed.img", access: before.access, id });
  const running = startTransfer(job);
  const { resume } = await running.event("resumable", ({ resume }) => resume.bytes === 16 * MIB);
  await running.kill();
  first = before.passed.length;
  const again = transferHere({ ...job, resume });
  expect(await again.ended).toEqual({ is: "done", bytes: LARGE.length });
  expect(fileHash(common.file)).toBe(hashOf(LARGE));
  const ranges = before.passed.slice(first).map(({ headers }) => Number(/\d+/.exec(headers.range ?? "")?.[0]));
  expect(Math.min(...ranges)).toBe(16 * MIB);
});

test("an object that was replaced meanwhile is fetched from its beginning", async () => {
  await stored("replaced.img", SMALL);
  const id = "5a7d1b52-6a37-4bb0-9a5e-0d9d0c6c2b12";
  writeFileSync(join(root, `images/.holdfast-${id}.part`), LARGE.subarray(0, 1000), { mode: 0o600 });
  const resume = { bytes: 1000, etag: '"00000000000000000000000000000000"', total: LARGE.length };
  const job = download({ key: "replaced.img", id, resume });
  expect(await transferHere(job).ended).toEqual({ is: "done", bytes: SMALL.length });
  expect(fileHash(common.file)).toBe(hashOf(SMALL));
});

test("an object that changes during its download is not mixed with its old content", async () => {
  await stored("changed.img", LARGE);
  const between = await front();
  let isChanged = false;
  between.fault = ({ headers }) => {
    if (headers.range?.startsWith("bytes=0-") === true || isChanged) return undefined;
    return { status: 503, code: "SlowDown" };
  };
  const running = transferHere(download({ key: "changed.img", access: between.access }));
  await running.event("retry");
  await stored("changed.img", LARGE.toReversed());
  isChanged = true;
  expect(await running.ended).toMatchObject({ is: "failed", code: "source-changed" });
  expect(leftIn("images")).toEqual([]);
});

test("retries a busy store with backoff, resumes what breaks off, and gives up a store that stays too busy", async () => {
  await stored("busy.img", LARGE);
  const [busy, busier] = [await front(), await front()];
  busy.fault = () => {
    if (busy.passed.length <= 2) return { status: 503, code: "SlowDown" };
    if (busy.passed.length === 3) return { status: 429, code: "TooManyRequests", headers: { "retry-after": "1" } };
    return busy.passed.length <= 6 ? "cut" : undefined;
  };
  busier.fault = () => ({ status: 503, code: "SlowDown" });
  const running = transferHere(download({ key: "busy.img", access: busy.access }));
  const vain = transferHere(download({ key: "busy.img", access: busier.access, file: "images/vain.img" }));
  expect(await running.ended).toEqual({ is: "done", bytes: LARGE.length });
  expect(fileHash(common.file)).toBe(hashOf(LARGE));
  const retries = running.events.filter((event) => event.is === "retry");
  expect(retries[0]?.reason).toContain("SlowDown (503)");
  expect(retries[1]?.afterMs).toBeGreaterThan(retries[0]?.afterMs ?? Infinity);
  expect(retries[2]?.afterMs).toBeGreaterThanOrEqual(1000);
  expect(busy.passed.some(({ headers }) => /^bytes=[1-9]\d+-16777215$/.test(headers.range ?? ""))).toBe(true);

  expect(await vain.ended).toMatchObject({ is: "failed", code: "throttled" });
  expect(busier.passed).toHaveLength(6);
});

test.runIf(isDue("refused parts"))("uploads parts again that the store refused for a while", async () => {
  put(LARGE);
  const busy = await front();
  const faults = [{ status: 503, code: "SlowDown" }, { status: 500, code: "InternalError" }, "cut"] as const;
  let parts = 0;
  busy.fault = ({ method }) => (method === "PUT" ? faults[(parts += 1) - 1] : undefined);
  const running = transferHere(upload({ key: "again.img", access: busy.access }));
  expect(await running.ended).toEqual({ is: "done", bytes: LARGE.length });
  expect(await fetched("again.img")).toBe(hashOf(LARGE));
  expect(running.events.filter((event) => event.is === "progress").every(({ bytes }) => bytes <= LARGE.length)).toBe(
    true,
  );
});

test("a killed upload continues with its stored parts", async () => {
  put(THREE_PARTS);
  const before = await front();
  let isKilled = false;
  before.fault = ({ path }) => (/partNumber=[23]/.test(path) && !isKilled ? "hold" : undefined);
  const job = upload({ key: "upload-resumed.img", access: before.access });
  const running = startTransfer(job);
  const { resume } = await running.event("resumable", ({ resume }) => resume.bytes >= 16 * MIB);
  await running.kill();
  isKilled = true;
  const from = before.passed.length;
  expect(await transferHere({ ...job, resume }).ended).toEqual({ is: "done", bytes: THREE_PARTS.length });
  expect(await fetched("upload-resumed.img")).toBe(hashOf(THREE_PARTS));
  const sent = before.passed.slice(from).filter(({ method }) => method === "PUT");
  expect(new Set(sent.map(({ path }) => /partNumber=(\d+)/.exec(path)?.[1]))).toEqual(new Set(["2", "3"]));
  expect(sent).toHaveLength(2);
  expect(await uploads()).not.toContain("upload-resumed.img");
});

test.runIf(isDue("changed upload"))("uploads the parts of a changed file again", async () => {
  put(LARGE);
  const before = await front();
  let isKilled = false;
  before.fault = ({ path }) => (/partNumber=[23]/.test(path) && !isKilled ? "hold" : undefined);
  const job = upload({ key: "upload-changed.img", access: before.access });
  const running = startTransfer(job);
  const { resume } = await running.event("resumable", ({ resume }) => resume.bytes >= 16 * MIB);
  await running.kill();
  isKilled = true;
  const changed = LARGE.toReversed();
  put(changed);
  expect(await transferHere({ ...job, resume }).ended).toEqual({ is: "done", bytes: LARGE.length });
  expect(await fetched("upload-changed.img")).toBe(hashOf(changed));
});

test("a cancelled upload leaves nothing in the bucket; the remains of an interrupted one are aborted later, also without its file, and repeatedly without harm", async () => {
  put(LARGE);
  const held = await front();
  held.fault = ({ path }) => (/partNumber=[23]/.test(path) ? "hold" : undefined);
  const cancelled = transferHere(upload({ key: "cancelled.img", access: held.access }));
  await cancelled.event("resumable", ({ resume }) => resume.bytes >= 16 * MIB);
  expect(await uploads()).toContain("cancelled.img");
  cancelled.cancel();
  expect(await cancelled.ended).toMatchObject({ is: "failed", code: "cancelled" });
  expect(await uploads()).not.toContain("cancelled.img");
  // The caller knows by this that nothing remains.
  const reported = cancelled.events.findLast((event) => event.is === "resumable");
  expect(reported?.resume.uploadId).toBeUndefined();

  const left = startTransfer(upload({ key: "left.img", access: held.access }));
  const { resume } = await left.event("resumable", ({ resume: { bytes } }) => bytes >= 16 * MIB);
  left.leave();
  await left.ended;
  expect(left.events.some(({ is }) => is === "failed")).toBe(false);
  rmSync(join(root, common.file));
  expect(await uploads()).toContain("left.img");
  const abort = s3Job({ kind: "s3-abort", root, access: access(), ...common, key: "left.img", resume });
  for (let n = 0; n < 2; n += 1) expect(await transferHere(abort).ended).toEqual({ is: "done", bytes: 0 });
  expect(await uploads()).not.toContain("left.img");
});

test("data changed during the upload is refused and sent again, and during the download is not kept", async () => {
  put(LARGE);
  const altering = await front();
  let isFirst = true;
  altering.fault = ({ path }) => {
    if (!/partNumber=2/.test(path) || !isFirst) return undefined;
    isFirst = false;
    return "alter";
  };
  const up = transferHere(upload({ key: "altered.img", access: altering.access }));
  expect(await up.ended).toEqual({ is: "done", bytes: LARGE.length });
  expect(up.events.filter((event) => event.is === "retry")).toHaveLength(1);
  expect(await fetched("altered.img")).toBe(hashOf(LARGE));

  await stored("altered-down.img", SMALL);
  altering.fault = () => "alter";
  const job = download({ key: "altered-down.img", access: altering.access, file: "images/down.img" });
  expect(await transferHere(job).ended).toMatchObject({ is: "failed", code: "hash-mismatch" });
  expect(leftIn("images")).toEqual(["disk.img"]);
});

test.runIf(isDue("truncated list of parts"))(
  "a list of parts that is truncated or malformed loses nothing of an upload",
  async () => {
    put(LARGE);
    const between = await front();
    let isKilled = false;
    between.fault = ({ path }) => (/partNumber=[23]/.test(path) && !isKilled ? "hold" : undefined);
    const job = upload({ key: "list-cut.img", access: between.access });
    const running = startTransfer(job);
    const { resume } = await running.event("resumable", ({ resume }) => resume.bytes >= 16 * MIB);
    await running.kill();
    isKilled = true;
    const isList = ({ method, path }: PassedRequest): boolean => method === "GET" && path.includes("uploadId=");
    const lists = [
      "<ListPartsResult><IsTruncated>tr",
      // It reports that there is more, without a marker.
      "<ListPartsResult><IsTruncated>true</IsTruncated></ListPartsResult>",
    ];
    between.fault = (request) => {
      const body = isList(request) ? lists.shift() : undefined;
      return body === undefined ? undefined : { status: 200, body };
    };
    const again = transferHere({ ...job, resume });
    expect(await again.ended).toEqual({ is: "done", bytes: LARGE.length });
    expect(again.events.filter((event) => event.is === "retry").map(({ reason }) => reason)).toEqual([
      `s3://${BUCKET}/list-cut.img: the answer of S3 cannot be read`,
    ]);
    expect(await fetched("list-cut.img")).toBe(hashOf(LARGE));
  },
);

test("a machine with a wrong clock signs by the store's", async () => {
  await stored("skewed.img", SMALL);
  const skewed = await front();
  const refusing = (date: Date) =>
    ({ status: 403, code: "RequestTimeTooSkewed", headers: { date: date.toUTCString() } }) as const;
  const later = new Date(Date.now() + 3_600_000);
  // The store itself corrects it again.
  skewed.fault = () => (skewed.passed.length === 1 ? refusing(later) : undefined);
  const running = transferHere(download({ key: "skewed.img", access: skewed.access }));
  expect(await running.ended).toEqual({ is: "done", bytes: SMALL.length });
  const signed = skewed.passed.map(({ headers }) => String(headers["x-amz-date"]).slice(0, 11));
  const hour = (date: Date): string => date.toISOString().replaceAll("-", "").slice(0, 11);
  expect(signed[1]).toBe(hour(later));
});

test("names expired credentials, and continues with those that are replaced in time", async () => {
  put(LARGE);
  const { accessKeyId, secretAccessKey } = swift;
  const credentials = credentialsFile(base, { accessKeyId: "test:soon-over", secretAccessKey });
  const expiring = await front();
  // The store refuses what was started with the old ones once they have expired.
  expiring.fault = ({ headers }) =>
    headers.authorization?.includes("test:soon-over") === true ? { status: 400, code: "ExpiredToken" } : undefined;
  const job = upload({ key: "expired.img", access: { ...expiring.access, credentials } });
  expect(await transferHere(job).ended).toMatchObject({ is: "failed", code: "bad-credentials" });

  const replaced = credentialsFile(base, { accessKeyId, secretAccessKey });
  let parts = 0;
  const isPut = ({ method }: PassedRequest): boolean => method === "PUT";
  const between = await front();
  between.fault = (request) => {
    if (!isPut(request) || (parts += 1) > 1) return undefined;
    // The first ones are invalid from now on.
    writeFileSync(replaced, JSON.stringify({ accessKeyId, secretAccessKey, sessionToken: "second" }));
    return { status: 503, code: "SlowDown" };
  };
  const long = transferHere(upload({ key: "renewed.img", access: { ...between.access, credentials: replaced } }));
  await long.event("retry");
  await waitFor("the new ones are used", () =>
    between.passed.some(({ headers }) => headers["x-amz-security-token"] === "second"),
  );
});

test("an upload that fails permanently leaves nothing in the bucket", async () => {
  put(LARGE);
  const refusing = await front();
  refusing.fault = ({ path }) => (/partNumber=2/.test(path) ? { status: 403, code: "AccessDenied" } : undefined);
  const running = transferHere(upload({ key: "refused.img", access: refusing.access }));
  expect(await running.ended).toMatchObject({ is: "failed", code: "access-denied" });
  expect(await uploads()).not.toContain("refused.img");
});

test.each(["s3-download", "s3-upload"] as const)(
  "%s names the refusal of S3, requests once, and prints no secret",
  async (kind) => {
    put(SMALL);
    const { accessKeyId, secretAccessKey } = swift;
    const wrongSecret = `${secretAccessKey}-wrong`;
    const wrongId = "test:nobody-here";
    const cases = [
      [{ accessKeyId, secretAccessKey: wrongSecret }, BUCKET, "bad-credentials", "SignatureDoesNotMatch (403)"],
      [{ accessKeyId: wrongId, secretAccessKey }, BUCKET, "bad-credentials", "(403)"],
      [{ accessKeyId, secretAccessKey }, "no-such-bucket-here", "no-such-bucket", "NoSuchBucket (404)"],
    ] as const;
    const refused = cases.map(async ([content, bucket, code, text], at) => {
      const refusing = await front();
      const credentials = credentialsFile(base, content);
      const start = at === 0 ? startTransfer : transferHere;
      const running = start(
        s3Job({ kind, root, ...common, bucket, key: "none.img", access: { ...refusing.access, credentials } }),
      );
      expect(await running.ended).toMatchObject({ is: "failed", code });
      expect(running.output()).toContain(text);
      expect(refusing.passed).toHaveLength(1);
      for (const secret of [content.secretAccessKey, content.accessKeyId, "Signature="]) {
        expect(running.output()).not.toContain(secret);
      }
    });
    await Promise.all(refused);
    expect(leftIn("images")).toEqual(["disk.img"]);
  },
);

test("names a missing object", async () => {
  const running = transferHere(download({ key: "none.img" }));
  const message = `s3://${BUCKET}/none.img: S3 answered NoSuchKey (404)`;
  expect(await running.ended).toEqual({ is: "failed", code: "no-such-key", message });
  expect(leftIn("images")).toEqual([]);
});

test.each([
  ["may be read by others", (): string => credentialsFile(base, swift, 0o640), "chmod 600"],
  ["lacks the secret", (): string => credentialsFile(base, { accessKeyId: "AKIDENTIFIER" }), "secretAccessKey"],
  ["is a directory", (): string => base, "is not a regular file"],
  ["is not there", (): string => join(base, "none.json"), "ENOENT"],
])("refuses a credentials file that %s, without any request", async (_, credentials, text) => {
  const unasked = await front();
  const job = download({ key: "any.img", access: { ...unasked.access, credentials: credentials() } });
  const running = transferHere(job);
  expect(await running.ended).toMatchObject({ is: "failed" });
  expect(running.output()).toContain(text);
  expect(running.output()).not.toContain("AKIDENTIFIER");
  expect(unasked.passed).toHaveLength(0);
});

test("a machine without a role and without configured credentials reports it", async () => {
  const { credentials: _, ...bare } = access();
  // No server there: https://docs.aws.amazon.com/sdkref/latest/guide/feature-imds-credentials.html
  const env = {
    AWS_EC2_METADATA_SERVICE_ENDPOINT: "http://127.0.0.1:9",
    AWS_ACCESS_KEY_ID: swift.accessKeyId,
    AWS_SECRET_ACCESS_KEY: swift.secretAccessKey,
  };
  const running = startTransfer(download({ key: "any.img", access: bare }), env);
  expect(await running.ended).toMatchObject({ is: "failed", code: "no-credentials" });
  expect(running.output()).not.toContain(swift.secretAccessKey);
});

test("applies a rate in both directions", async () => {
  put(SMALL);
  await stored("slow-down.img", SMALL);
  const limits = { maxBytesPerSecond: 100 * 1024 };
  const jobs = [
    upload({ key: "slow-up.img", limits }),
    download({ key: "slow-down.img", limits, file: "images/down" }),
  ];
  const began = performance.now();
  const ended = jobs.map(async (job) => {
    expect(await transferHere(job).ended).toEqual({ is: "done", bytes: SMALL.length });
    // Never earlier; the first piece is sent at once.
    expect(performance.now() - began).toBeGreaterThan(2000);
  });
  await Promise.all(ended);
});

test("reaches a private address of an object store only if the machine's owner configured it", async () => {
  const refused = access({ endpoint: "http://169.254.169.254:80" });
  const running = transferHere(download({ key: "any.img", access: refused }));
  expect(await running.ended).toMatchObject({ is: "failed", code: "forbidden-address" });
});

test("refuses a download larger than allowed before it starts", async () => {
  await stored("large.img", SMALL);
  const running = transferHere(download({ key: "large.img", limits: { maxBytes: 1000 } }));
  expect(await running.ended).toMatchObject({ is: "failed", code: "too-large" });
  expect(existsSync(join(root, common.file))).toBe(false);
  expect(statSync(join(root, "images")).isDirectory()).toBe(true);
});
