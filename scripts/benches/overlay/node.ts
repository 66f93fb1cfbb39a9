import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { z } from "zod";
import { connectControl, type ControlClient } from "../../../src/host/overlay/control.ts";
import { P256PublicKey, thumbprint } from "../../../src/protocol/values/keys.ts";
import { OverlayIdentity, type MeshPeer, type MeshState } from "../../../src/protocol/overlay/mesh.ts";
import { OVERLAY_FORMAT, OVERLAY_SOCKET, type OverlayTable } from "../../../src/protocol/overlay/overlay.ts";
import { BUNDLE, start, until, type Running, type StartOptions } from "../programs.ts";
import { aKey } from "./certificate.ts";

/** A public overlay key. */
export type PublicKey = z.infer<typeof P256PublicKey>;

/** A node's identity, and the record of it that others need. */
export interface Member {
  readonly identity: OverlayIdentity;
  readonly peer: MeshPeer;
}

/** The table of a node but for what changes with each setting of it. */
export type Content = Omit<OverlayTable, "format" | "version">;

/** An overlay program of the bundle, which the bench drives as an agent would. */
export interface OverlayNode {
  pid(): number;
  set(content: Content): Promise<void>;
  state(): Promise<MeshState>;
  /** Goes away and comes back as an agent does that was restarted: the same identity, the same table. */
  agentRestarts(): Promise<void>;
  /** Ends it at once and starts it again; ready as soon as there is a process. */
  crash(): void;
  signal(name: NodeJS.Signals): void;
  end(): Promise<void>;
}

/** A member with a key of its own; `number` makes its uid. */
export async function aMember(number: number): Promise<Member> {
  const jwk = aKey().export({ format: "jwk" });
  const peer = await aPeer(number, P256PublicKey.parse(jwk));
  return { identity: OverlayIdentity.parse({ uid: peer.uid, key: jwk }), peer };
}

/** Returns the record that others need of the member with this key. */
export async function aPeer(number: number, key: PublicKey): Promise<MeshPeer> {
  const uid = `00000000-0000-4000-8000-${number.toString(16).padStart(12, "0")}`;
  return { uid, fqdn: `n${number}.bench`, key: await thumbprint(key) };
}

const nothing = (): void => undefined;
const notices = {
  "flows.ended": nothing,
  "listeners.changed": nothing,
  "services.changed": nothing,
  "mesh.changed": nothing,
  "mesh.events": nothing,
  "rtt.closed": nothing,
  fault: nothing,
};

/** Starts it in `dir` and gives it its identity. */
export async function startNode(dir: string, member: Member, options: StartOptions): Promise<OverlayNode> {
  mkdirSync(dir, { recursive: true });
  const runDir = join(dir, "run");
  const socket = join(runDir, OVERLAY_SOCKET);
  const launch = (): Running =>
    start([BUNDLE, "overlay", "--state", join(dir, "state"), "--run", runDir], join(dir, "log"), options);
  let program = launch();
  let control: ControlClient | undefined;
  let version = 0;
  let current: Content = { services: [], listeners: [] };
  const meet = async (): Promise<ControlClient> => {
    if (control !== undefined) return control;
    let fresh: ControlClient | undefined;
    await until("the overlay listens", async () => {
      fresh = await connectControl(socket, notices, () => (control = undefined));
      return true;
    });
    if (fresh === undefined) throw new Error("nobody listens");
    await fresh.peer.request("identity.set", member.identity);
    return (control = fresh);
  };
  const set = async (content: Content): Promise<void> => {
    current = content;
    version += 1;
    const { peer } = await meet();
    await peer.request("table.set", { table: { format: OVERLAY_FORMAT, version, ...content } });
  };
  await meet();
  return {
    pid: () => program.pid,
    set,
    state: async () => (await meet()).peer.request("mesh.get", {}),
    async agentRestarts() {
      control?.close();
      control = undefined;
      await set(current);
    },
    crash() {
      control?.close();
      control = undefined;
      void program.end("SIGKILL");
      rmSync(socket, { force: true });
      program = launch();
    },
    signal(name) {
      process.kill(program.pid, name);
    },
    async end() {
      control?.close();
      await program.end("SIGKILL");
    },
  };
}
