import { spawn } from "node:child_process";
import { existsSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { userInfo } from "node:os";
import { basename, join } from "node:path";
import { deathTie } from "../../../src/host/process/death-tie.ts";
import { SEARCH_PATH } from "../../../src/host/process/exec.ts";
import { freePort } from "../machine/programs.ts";
import { waitFor } from "../wait-for.ts";

/** A real object store on 127.0.0.1 with the S3 protocol: Debian's Swift, its four servers in one process on a directory, with memcached. */
export interface SwiftServer {
  readonly port: number;
  /** `http://127.0.0.1:port`, for path style. */
  readonly endpoint: string;
  /** `http://s3.test:port`, behind a proxy that resolves the name; the bucket's name is put before it. */
  readonly hostEndpoint: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  stop(): Promise<void>;
}

const KINDS = ["account", "container", "object"] as const;
const USER = { account: "test", user: "tester", key: "testing-Secret-4711" } as const;
const REGION = "eu-test-1";

/** Starts one below `dir`. The caller stops it; at the latest it ends with the test program. */
export async function startSwift(dir: string): Promise<SwiftServer> {
  if (!existsSync("/usr/bin/swift-proxy-server")) throw new Error("Swift is missing: apt-get install swift-proxy");
  mkdirSync(join(dir, "devices", "d1"), { recursive: true });
  writeFileSync(join(dir, "swift.conf"), "[swift-hash]\nswift_hash_path_suffix = of-tests\n");
  const children: (() => Promise<void>)[] = [];
  const ports = new Map<string, number>();
  for (const kind of KINDS) {
    ports.set(kind, await freePort());
    writeFileSync(join(dir, `${kind}.conf`), storageConfig(dir, kind));
  }
  const [memcached, port] = [await freePort(), await freePort()];
  writeFileSync(join(dir, "proxy.conf"), proxyConfig(dir, memcached));
  ports.set("proxy", port);
  const args = [...ports].flatMap(([kind, at]) => [kind, String(at)]);
  // Debian's own Python, which has Debian's Swift.
  children.push(startTied(dir, "/usr/bin/python3", ["-c", SERVE, dir, ...args]));
  const asUser = ["-u", userInfo().username];
  children.push(startTied(dir, "memcached", ["-l", "127.0.0.1", "-p", String(memcached), "-U", "0", ...asUser]));
  await waitFor("Swift answers", () => answers(port));
  return {
    port,
    endpoint: `http://127.0.0.1:${port}`,
    hostEndpoint: `http://s3.test:${port}`,
    region: REGION,
    accessKeyId: `${USER.account}:${USER.user}`,
    secretAccessKey: USER.key,
    async stop() {
      await Promise.all(children.map((stop) => stop()));
    },
  };
}

/**
 * Makes the rings as swift-ring-builder(1) does, and serves as the four programs swift-KIND-server(1) do: each of these processes would
 * load all of Swift.
 */
const SERVE = `import os, sys
from swift.common import utils
utils.eventlet_monkey_patch()
import eventlet
from eventlet import wsgi
from swift.common.http_protocol import SwiftHttpProtocol
from swift.common.ring import RingBuilder
from swift.common.wsgi import get_socket, loadapp

os.chdir(sys.argv[1])
ports = dict(zip(sys.argv[2::2], map(int, sys.argv[3::2])))
for kind in ports.keys() - {"proxy"}:
    at = {"ip": "127.0.0.1", "port": ports[kind], "replication_ip": "127.0.0.1", "replication_port": ports[kind]}
    builder = RingBuilder(4, 1, 1)
    builder.add_dev({"region": 1, "zone": 1, "device": "d1", "weight": 1.0, "meta": "", **at})
    builder.rebalance()
    builder.get_ring().save(kind + ".ring.gz")

def serve(kind, port):
    listening = get_socket({"bind_ip": "127.0.0.1", "bind_port": port})
    app = loadapp(os.path.abspath(kind + ".conf"), global_conf={"log_name": kind + "-server"})
    # S3 clients need the header ETag, not Etag.
    options = {"protocol": SwiftHttpProtocol, "capitalize_response_headers": False}
    return eventlet.spawn(wsgi.server, listening, app, utils.NullLogger(), **options)

for server in [serve(*one) for one in ports.items()]:
    server.wait()
`;

function startTied(dir: string, program: string, options: readonly string[]): () => Promise<void> {
  const out = openSync(join(dir, `${basename(program)}.log`), "a");
  const { file, args } = deathTie(SEARCH_PATH)({ file: program, args: options });
  const child = spawn(file, args, { stdio: ["ignore", out, out], env: { PATH: SEARCH_PATH } });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  return () => {
    child.kill("SIGKILL");
    return gone;
  };
}

function common(dir: string): string {
  return `swift_dir = ${dir}
user = ${userInfo().username}
log_level = WARNING`;
}

function storageConfig(dir: string, kind: string): string {
  return `[DEFAULT]
${common(dir)}
devices = ${join(dir, "devices")}
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = ${kind}-server
[app:${kind}-server]
use = egg:swift#${kind}
`;
}

function proxyConfig(dir: string, memcached: number): string {
  const pipeline = "catch_errors cache listing_formats s3api tempauth bulk slo dlo proxy-server";
  const filters = ["catch_errors", "listing_formats", "bulk", "slo", "dlo"];
  return `[DEFAULT]
${common(dir)}
[pipeline:main]
pipeline = ${pipeline}
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:${memcached}
[filter:s3api]
use = egg:swift#s3api
location = ${REGION}
storage_domain = s3.test
[filter:tempauth]
use = egg:swift#tempauth
user_${USER.account}_${USER.user} = ${USER.key} .admin
${filters.map((name) => `[filter:${name}]\nuse = egg:swift#${name}\n`).join("")}`;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const requested = request({ host: "127.0.0.1", port, path: "/info" }, (response) => {
      response.resume();
      resolve(true);
    });
    requested.once("error", () => resolve(false));
    requested.end();
  });
}
