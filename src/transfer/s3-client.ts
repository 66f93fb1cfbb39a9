import { backoff, jitter, type Random } from "../lib/async/backoff.ts";
import type { GetObjectCommandOutput, S3Client } from "@aws-sdk/client-s3";
import type { Clock } from "../host/clock.ts";
import type * as s3Sdk from "../host/net/s3-sdk.ts";
import type { S3Object } from "../protocol/triggers/data-store.ts";
import type { S3Access, TransferEvent, TransferLimits } from "../protocol/triggers/transfer.ts";
import { tellHash } from "./s3-body.ts";
import { readS3Credentials, type S3Credentials } from "./s3-credentials.ts";
import { isPassing, refusalOf, s3Error } from "./s3-error.ts";
import { S3Http, type Connect } from "./s3-http.ts";
import { defined } from "../lib/defined.ts";

export interface S3Options {
  readonly object: S3Object;
  readonly access: S3Access;
  readonly limits: Pick<TransferLimits, "stallMs" | "concurrency" | "maxBytesPerSecond">;
  readonly connect: Connect;
  readonly clock: Clock;
  readonly emit: (event: TransferEvent) => void;
  readonly random: Random;
  /** Aborts the search for the bucket's region. */
  readonly signal: AbortSignal;
}

type Sdk = typeof s3Sdk;

/** Progress of one request; an attempt with progress resets the retries. */
export interface Attempts {
  readonly signal: AbortSignal;
  readonly progress?: () => number;
}

const MAX_ATTEMPTS = 6;
const RETRY = { firstMs: 500, maxMs: 20_000 };
/** Default region of buckets. */
const HOME_REGION = "us-east-1";
/** Minimum share of a low rate for each connection, so that none stalls. */
const LEAST_RATE = 256 * 1024;

/** Requests about one object of a bucket. */
export class S3Target {
  readonly sdk: Sdk;
  readonly client: S3Client;
  readonly object: { readonly Bucket: string; readonly Key: string };
  /** `s3://bucket/key` */
  readonly name: string;
  /** Concurrent requests. */
  readonly concurrency: number;
  readonly #options: S3Options;
  readonly #http: S3Http;

  private constructor(options: S3Options, opened: { sdk: Sdk; client: S3Client; http: S3Http }) {
    const { object, limits } = options;
    this.#options = options;
    this.sdk = opened.sdk;
    this.client = opened.client;
    this.#http = opened.http;
    this.object = { Bucket: object.bucket, Key: object.key };
    this.name = `s3://${object.bucket}/${object.key}`;
    this.concurrency = concurrencyOf(limits);
  }

  /** @throws {InputError} `bad-secret-file`; errors of `attempt` from the lookup of the bucket's region */
  static async open(options: S3Options): Promise<S3Target> {
    const { access, connect, limits } = options;
    const sdk = await import("../host/net/s3-sdk.ts");
    // Below the transfer's own stall limit, so that another connection is tried first.
    const http = new S3Http({ connect, maxSockets: concurrencyOf(limits) + 1, stallMs: limits.stallMs / 2 });
    const common = {
      ...defined({ endpoint: access.endpoint }),
      forcePathStyle: access.pathStyle,
      credentials:
        access.credentials === undefined
          ? sdk.fromInstanceMetadata({ maxRetries: 2, timeout: 2000, ec2MetadataV1Disabled: true })
          : rereadCredentials(access.credentials),
      requestHandler: http,
      // Retries are counted here, since a response body can break off too.
      maxAttempts: 1,
      retryMode: "standard",
      defaultsMode: "standard",
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
      expectContinueHeader: false,
      disableS3ExpressSessionAuth: true,
      useArnRegion: false,
      useDualstackEndpoint: false,
      useFipsEndpoint: false,
    } as const;
    const make = (region: string): S3Target => {
      const client = new sdk.S3Client({ ...common, region });
      const tell = { step: "build", name: "tellHash" } as const;
      client.middlewareStack.add((next) => (args) => (tellHash(args.request), next(args)), tell);
      return new S3Target(options, { sdk, http, client });
    };
    if (access.region !== undefined) return make(access.region);
    return make(await make(HOME_REGION).#findRegion());
  }

  /**
   * Runs `run` and retries transient failures with backoff, up to six times without progress. Logs each retry.
   * @throws {InputError} `no-such-bucket`, `no-such-key`, `bad-credentials`, `access-denied`; {SessionError} `clock-skew`,
   *   `source-changed`, `throttled`, `s3-failed` and those of connections; the signal's reason
   */
  async attempt<T>(run: () => Promise<T>, { signal, progress = () => 0 }: Attempts): Promise<T> {
    const { clock, emit, random } = this.#options;
    let reached = progress();
    for (let failed = 1; ; failed += 1) {
      signal.throwIfAborted();
      try {
        return await run();
      } catch (error) {
        signal.throwIfAborted();
        if (progress() > reached) failed = 1;
        reached = progress();
        const failure = s3Error(error, this.name);
        if (failed >= MAX_ATTEMPTS || !isPassing(error)) throw failure;
        const waitMs = jitter(backoff(failed, RETRY), [0.5, 1], random);
        const afterMs = Math.round(Math.min(RETRY.maxMs, Math.max(refusalOf(error)?.retryAfterMs ?? 0, waitMs)));
        emit({ is: "retry", reason: failure.message, afterMs });
        await clock.sleep(afterMs, signal);
      }
    }
  }

  /** Requests the object or a byte range, in the version `etag` if given. */
  async get(
    wanted: { readonly start: number; readonly end: number } | undefined,
    etag: string | undefined,
    signal: AbortSignal,
  ): Promise<GetObjectCommandOutput> {
    const command = new this.sdk.GetObjectCommand({
      ...this.object,
      ...(wanted === undefined ? {} : { Range: `bytes=${wanted.start}-${wanted.end - 1}` }),
      ...defined({ IfMatch: etag }),
    });
    return this.client.send(command, { abortSignal: signal });
  }

  close(): void {
    this.#http.destroy();
    this.client.destroy();
  }

  /** Finds the bucket's region: S3 reports it even in a refusal. */
  async #findRegion(): Promise<string> {
    const { signal } = this.#options;
    const ask = async (): Promise<string | undefined> => {
      try {
        const command = new this.sdk.GetBucketLocationCommand({ Bucket: this.object.Bucket });
        const { LocationConstraint } = await this.client.send(command, { abortSignal: signal });
        // Legacy name of a region: https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetBucketLocation.html
        return LocationConstraint === "EU" ? "eu-west-1" : LocationConstraint;
      } catch (error) {
        const refusal = refusalOf(error);
        if (refusal === undefined || isPassing(error)) throw error;
        return refusal.region;
      }
    };
    return (await this.attempt(ask, { signal })) ?? HOME_REGION;
  }
}

function concurrencyOf({ concurrency, maxBytesPerSecond = Infinity }: S3Options["limits"]): number {
  return Math.max(1, Math.min(concurrency, Math.floor(maxBytesPerSecond / LEAST_RATE)));
}

/**
 * Provides credentials from a file. Reads it again for each request, since short-lived ones are replaced during a long transfer.
 * @throws {InputError} `bad-secret-file`; {HostError} `storage-failed`
 */
function rereadCredentials(path: string): () => Promise<S3Credentials & { readonly expiration: Date }> {
  readS3Credentials(path);
  // The SDK calls this again for expired credentials.
  return () => Promise.resolve({ ...readS3Credentials(path), expiration: new Date(0) });
}
