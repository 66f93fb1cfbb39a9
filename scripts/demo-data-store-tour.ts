// What the demo of the data store shows: commands with real identifiers filled in, and what each must answer.
import type { SwiftServer } from "../test/support/data-store/swift.ts";
import { SLOW } from "./demo-files.ts";
import type { Stop } from "./demo-tour.ts";

export interface DataStoreStage {
  /** The folder of everything the demo makes. */
  readonly dir: string;
  /** The control plane, and its node. */
  readonly url: string;
  readonly uid: string;
  /** The file server. */
  readonly files: string;
  readonly swift: SwiftServer;
}

/** The bucket that the node's owner has configured. */
export const BUCKET = "demo-images";
const HOLDFAST = "scripts/holdfast";
const IMAGE = "0f8d6f0a-6f0e-4f51-9a51-6b1f7b5f3c11";
const SIZE = "67.1 MB";
const LIMIT_MS = 60_000;

/** The stops in order. */
export function dataStoreTour(stage: DataStoreStage): readonly Stop[] {
  return [...fetched(stage), ...inBucket(stage), ...killed(stage), ...refused(stage), ...images(stage)];
}

const authOf = ({ dir }: DataStoreStage): string => `-H "Authorization: $(cat ${dir}/controller/admin.key)"`;
const storeOf = ({ url, uid }: DataStoreStage): string => `${url}/v2/node/${uid}/data-store`;

/** Begins a task; the answer, which has its id, stays in a file. */
function begin(stage: DataStoreStage, verb: string, fields: Readonly<Record<string, string>>, as: string): string {
  const body = Object.entries(fields).map(([name, value]) => `"${name}":"${value}"`);
  const json = `-H 'content-type: application/json'`;
  return `curl -s ${authOf(stage)} ${json} -X POST ${storeOf(stage)}/${verb} -d "{${body.join(",").replaceAll('"', '\\"')}}" | tee ${stage.dir}/${as}`;
}

/** Status and details of a task that was begun. */
function taskOf(stage: DataStoreStage, as: string): string {
  const id = `$(cut -d '"' -f 4 ${stage.dir}/${as})`;
  const task = `curl -s ${authOf(stage)} ${storeOf(stage)}/tasks | grep -o "\\"id\\":\\"${id}\\"[^}]*"`;
  return `${task} | grep -o '"status":"[^"]*","details":"[^"]*"'`;
}

/** The same until it has ended. */
const watch = (stage: DataStoreStage, as: string): string =>
  `until t=$(${taskOf(stage, as)}); echo "$t"; [[ $t == *Completed* || $t == *Failed* ]]; do sleep 0.5; done`;

const completed = new RegExp(`"Completed","details":"${SIZE.replace(".", "\\.")}`);

function fetched(stage: DataStoreStage): readonly Stop[] {
  const { dir, files } = stage;
  const download = {
    uri: `${files}/disk.img?key=secret`,
    filename: "disk.img",
    location: "/images",
    hash: `$(curl -s ${files}/sha256)`,
    algo: "SHA-256",
  };
  return [
    {
      title: "what only the machine's owner decides: where transfers may connect to, and how a bucket is reached",
      command: `cat ${dir}/agent.json`,
      expect: /"allowAddresses"[^]*"127\.0\.0\.0\/8"[^]*"credentials"/,
    },
    {
      title: "have the node fetch a file, whose SHA-256 it checks; the answer is the task",
      command: begin(stage, "http-download", download, "fetch"),
      expect: /"id":"[0-9a-f-]{36}"/,
    },
    {
      title: "watch the task until it has ended",
      command: watch(stage, "fetch"),
      expect: new RegExp(`Running","details":"\\d+ %[^]*${completed.source}`),
    },
    {
      title: "the data store, as the node lists it",
      command: `curl -s ${authOf(stage)} ${storeOf(stage)}/list`,
      expect: /"name":"disk\.img","path":"images\/disk\.img","type":"file","size":"67\.1 MB","bytes":67108864/,
    },
    {
      title: "the same from the node's own command line",
      command: `${HOLDFAST} data-store --run ${dir}/run`,
      expect: /67\.1 MB +disk\.img/,
    },
    {
      title: "what an address has behind its ? is a secret, and in no task and no log",
      command: `curl -s ${authOf(stage)} ${storeOf(stage)}/tasks | grep -o '"peer":"[^"]*"'; grep -c secret ${dir}/agent.log`,
      expect: /disk\.img\?…"\n0\n/,
    },
  ];
}

function inBucket(stage: DataStoreStage): readonly Stop[] {
  const { dir, swift } = stage;
  const user = `-H 'x-storage-user: ${swift.accessKeyId}' -H 'x-storage-pass: ${swift.secretAccessKey}'`;
  const token = `$(curl -si ${user} ${swift.endpoint}/auth/v1.0 | tr -d '\\r' | grep -i '^x-auth-token:')`;
  const [account] = swift.accessKeyId.split(":");
  const there = `s3://${BUCKET}/disk.img`;
  const hash = (name: string): string => `${dir}/node/data-store/images/${name}`;
  return [
    {
      title: "put it into a bucket, in parts at a time",
      command: begin(stage, "s3-upload", { filePath: "images/disk.img", bucketDest: there }, "put"),
      expect: /"id":"/,
    },
    { title: "until it is there", command: watch(stage, "put"), expect: completed },
    {
      title: "the object store about it, asked in its own way and not by S3",
      command: `curl -s -H "${token}" '${swift.endpoint}/v1/AUTH_${account}/${BUCKET}?format=json'`,
      expect: /"bytes": 67108864/,
    },
    {
      title: "and back under another name",
      command: `${begin(stage, "s3-download", { uri: there, location: "/images/copy.img" }, "get")}; echo; ${watch(stage, "get")}`,
      expect: completed,
    },
    {
      title: "both are the file that the file server has",
      command: `sha256sum ${hash("disk.img")} ${hash("copy.img")}; curl -s ${stage.files}/sha256`,
      expect: /^([0-9a-f]{64}) .*\n\1 .*\n\1\n$/,
    },
  ];
}

function killed(stage: DataStoreStage): readonly Stop[] {
  const { dir, files } = stage;
  const slow = {
    uri: `${files}${SLOW}`,
    location: "/images",
    filename: "slow.img",
    hash: `$(curl -s ${files}/sha256)`,
  };
  const percent = `${taskOf(stage, "slow")} | grep -o '[0-9]* %' | cut -d ' ' -f 1`;
  // What the next agent needs to go on is on the disk, and more has come since.
  const isOnDisk = `grep -aqs disk-of-the-demo ${dir}/node/state.db ${dir}/node/state.db-wal`;
  return [
    {
      title: "kill -9 the agent in the middle of a download that takes half a minute; the demo starts the next one",
      command: [
        `${begin(stage, "http-download", slow, "slow")}; echo`,
        `until p=$(${percent}); [ "\${p:-0}" -ge 20 ] && ${isOnDisk}; do sleep 0.2; done`,
        `${taskOf(stage, "slow")}; kill -9 $(cat ${dir}/run/agent.pid) && echo "the agent is killed"`,
      ].join("; "),
      expect: /Running","details":"\d+ %[^]*the agent is killed/,
    },
    {
      title: "the same task goes on, and ends as if nothing had happened",
      command: taskOf(stage, "slow"),
      expect: completed,
      isEventual: true,
      limitMs: LIMIT_MS,
    },
    {
      title: "the file server was asked for the rest alone",
      command: `curl -s ${files}/requests`,
      expect: /GET \/slow\/disk\.img whole\nGET \/slow\/disk\.img bytes=[1-9]\d{5,}-\n/,
    },
    {
      title: "and the file is whole",
      command: `sha256sum ${dir}/node/data-store/images/slow.img; curl -s ${files}/sha256; ls -A ${dir}/node/data-store/images`,
      expect: /^([0-9a-f]{64}) .*\n\1\ncopy\.img\ndisk\.img\nslow\.img\n$/,
    },
  ];
}

function refused(stage: DataStoreStage): readonly Stop[] {
  const to = { filename: "x", location: "/images" };
  const failing = (uri: string, as: string): string =>
    `${begin(stage, "http-download", { uri, ...to }, as)}; echo; ${watch(stage, as)}`;
  return [
    {
      title: "refused: where clouds keep the credentials of a machine",
      command: failing("http://169.254.169.254/latest/meta-data/iam", "cloud"),
      expect: /Failed","details":"169\.254\.169\.254 is the address of a cloud's metadata service/,
    },
    {
      title: "refused: a link-local address",
      command: failing("http://169.254.10.1/secret", "link-local"),
      expect: /Failed","details":"169\.254\.10\.1 is a link-local address/,
    },
    {
      title: "refused: a way out of the data store",
      command: begin(
        stage,
        "http-download",
        { uri: `${stage.files}/disk.img`, filename: "x", location: "/images/../.." },
        "out",
      ),
      expect: /is not a path in the data store/,
    },
    {
      title: "refused: to list through a link that leads out, which somebody has put there",
      command: `ln -s /etc ${stage.dir}/node/data-store/out; curl -s ${authOf(stage)} '${storeOf(stage)}/list?filename=out'; rm ${stage.dir}/node/data-store/out`,
      expect: /is a link[^]*"code":"forbidden"/,
    },
  ];
}

function images(stage: DataStoreStage): readonly Stop[] {
  const { url, uid } = stage;
  const base = `${url}/v2/node/${uid}/kvm/image`;
  const json = `-H 'content-type: application/json'`;
  const record = (location: string): string =>
    `'{"id":"${IMAGE}","displayName":"Demo","location":"${location}","os":"linux"}'`;
  return [
    {
      title: "the record of a machine image whose file is not there is refused",
      command: `curl -s ${authOf(stage)} ${json} -X POST ${base} -d ${record("/images/none.img")}`,
      expect: /none\.img/,
    },
    {
      title: "one of a file that is there",
      command: `curl -s ${authOf(stage)} ${json} -X POST ${base} -d ${record("/images/disk.img")}`,
      expect: new RegExp(`"id":"${IMAGE}"`),
    },
    {
      title: "the records, with what the node says of their files",
      command: `curl -s ${authOf(stage)} ${base}`,
      expect: /"displayName":"Demo"[^]*"present":true[^]*"bytes":67108864/,
    },
    {
      title: "take away the record and its file",
      command: `curl -s ${authOf(stage)} -X DELETE '${base}/${IMAGE}?deleteFile=true'; curl -s ${authOf(stage)} ${base}; ls ${stage.dir}/node/data-store/images`,
      expect: /\[\]\s*copy\.img\nslow\.img\n$/,
    },
  ];
}
