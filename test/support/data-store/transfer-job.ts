import type { TransferJob } from "../../../src/protocol/triggers/transfer.ts";

/** A job with defaults. */
export const transferJob = (
  change: Partial<Extract<TransferJob, { kind: "http-download" }>> = {},
): Extract<TransferJob, { kind: "http-download" }> => ({
  kind: "http-download",
  id: "6b1f0c1e-8b1c-4f0a-9c39-5b1de24d4b11",
  root: "/nowhere",
  parts: ["a"],
  policy: { allow: [] },
  limits: {
    maxBytes: 1e12,
    reserveRatio: 0,
    minBytesPerSecond: 0,
    maxMs: 60_000,
    connectMs: 5000,
    stallMs: 5000,
    maxRedirects: 5,
    concurrency: 1,
  },
  proxies: { noProxy: [] },
  uri: "http://files.example/a?token=secret",
  ...change,
});
