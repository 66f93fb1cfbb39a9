// Objects of a real Swift by S3, against rclone.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import { startSwift } from "../../../test/support/data-store/swift.ts";
import { median, type Figure } from "../figures.ts";
import { command, jobOf, transfer, type Cost, type Work } from "./transfers.ts";

const BUCKET = "bench";
const ROUNDS = 3;

export interface ObjectsOptions {
  readonly dir: string;
  readonly store: string;
  /** A file of 1 GB in the store. */
  readonly name: string;
  readonly say: (line: string) => void;
}

/** 1 GB up and down, in turns with rclone as it comes, over the same Swift and the same disk. */
export async function objects({ dir, store, name, say }: ObjectsOptions): Promise<Figure[]> {
  mkdirSync(dir);
  const swift = await startSwift(join(dir, "swift"));
  try {
    const { endpoint, region, accessKeyId, secretAccessKey } = swift;
    const secret = { accessKeyId, secretAccessKey };
    const client = new S3Client({ endpoint, region, credentials: secret, forcePathStyle: true });
    await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
    client.destroy();
    const credentials = join(dir, "credentials.json");
    writeFileSync(credentials, JSON.stringify(secret), { mode: 0o600 });
    const access = { endpoint, region, pathStyle: true, credentials };
    const ours = (kind: "s3-download" | "s3-upload", file: string): Promise<Cost> => {
      const work: Work = { kind, bucket: BUCKET, key: "ours", access };
      return transfer(jobOf(store, file, work));
    };
    const env = {
      RCLONE_CONFIG: join(dir, "rclone.conf"),
      RCLONE_CONFIG_SWIFT_TYPE: "s3",
      RCLONE_CONFIG_SWIFT_PROVIDER: "Other",
      RCLONE_CONFIG_SWIFT_ENDPOINT: endpoint,
      RCLONE_CONFIG_SWIFT_REGION: region,
      RCLONE_CONFIG_SWIFT_ACCESS_KEY_ID: accessKeyId,
      RCLONE_CONFIG_SWIFT_SECRET_ACCESS_KEY: secretAccessKey,
    };
    writeFileSync(env.RCLONE_CONFIG, "");
    // It would leave out what is there already.
    const theirs = (from: string, to: string): Promise<Cost> =>
      command(`rclone --quiet --ignore-times copyto ${from} ${to}`, env);
    const object = (name: string): string => `swift:${BUCKET}/${name}`;
    const rounds: { readonly up: readonly [Cost, Cost]; readonly down: readonly [Cost, Cost] }[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const up = [await ours("s3-upload", name), await theirs(join(store, name), object("theirs"))] as const;
      const down = [await ours("s3-download", "ours"), await theirs(object("ours"), join(store, "theirs"))] as const;
      rounds.push({ up, down });
      const shown = (pair: readonly [Cost, Cost]): string =>
        pair
          .map(({ seconds, cpuSeconds }) => `${seconds.toFixed(1)} s with ${cpuSeconds.toFixed(1)} s CPU`)
          .join(", rclone ");
      say(`  up ${shown(up)}; down ${shown(down)}`);
      for (const file of ["ours", "theirs"]) rmSync(join(store, file), { force: true });
    }
    const figures = (way: "up" | "down", what: string): Figure[] => {
      const figure = (part: string, of: (cost: Cost) => number): Figure => ({
        what: `${what}, ${part}`,
        value: median(rounds.map((round) => of(round[way][0]))),
        unit: "s",
        peer: { name: "rclone", value: median(rounds.map((round) => of(round[way][1]))) },
        ratio: median(rounds.map((round) => of(round[way][0]) / of(round[way][1]))),
      });
      return [
        { ...figure("time", ({ seconds }) => seconds), bar: { of: "ratio", most: 1.5 } },
        figure("processor", ({ cpuSeconds }) => cpuSeconds),
      ];
    };
    return [...figures("up", "1 GB to a bucket"), ...figures("down", "1 GB from a bucket")];
  } finally {
    await swift.stop();
  }
}
