// Refuses what a unit test must not do: start a process, or use a socket beyond the loopback interface.
import childProcess, { ChildProcess } from "node:child_process";
import { Socket as UdpSocket } from "node:dgram";
import { syncBuiltinESMExports } from "node:module";
import { Server, Socket } from "node:net";

/** Set once the methods are replaced: the files of a worker share its process. */
const DONE = Symbol.for("holdfast.unit-tests-start-no-processes");

const LOOPBACK = /^(?:0\.0\.0\.0$|::$|127\.|::1$|::ffff:127\.|localhost$)/;

function refuse(what: string): never {
  throw new Error(`a unit test must not ${what}; tests that do belong in test/integration`);
}

/** Calls `check` with the arguments of every call of a method before the method itself. */
function before(owner: object, name: string, check: (args: readonly unknown[]) => void): void {
  const method: unknown = Reflect.get(owner, name);
  if (typeof method !== "function") throw new Error(`there is no method ${name}`);
  Reflect.set(owner, name, function checked(this: unknown, ...args: unknown[]): unknown {
    check(args);
    const result: unknown = Reflect.apply(method, this, args);
    return result;
  });
}

/** Returns the address of a call: `(port, host)`, `({ host })` or `({ address })`; undefined for none and for a path. */
function addressIn(args: readonly unknown[]): unknown {
  // `net.connect` passes its normalized arguments as one array.
  const [first, second]: readonly unknown[] = Array.isArray(args[0]) ? args[0] : args;
  if (typeof first !== "object" || first === null) return typeof first === "number" ? second : undefined;
  return Reflect.get(first, "host") ?? Reflect.get(first, "address");
}

/** The address of `send(message, …, port, address?, callback?)`: the only string after the message. */
const receiverIn = (args: readonly unknown[]): unknown => args.slice(1).find((arg) => typeof arg === "string");

function staysHere(what: string, find = addressIn): (args: readonly unknown[]) => void {
  return (args) => {
    const address = find(args);
    if (typeof address === "string" && !LOOPBACK.test(address)) refuse(`${what} ${address}`);
  };
}

if (!Reflect.has(globalThis, DONE)) {
  Reflect.set(globalThis, DONE, true);
  // Every asynchronous way to start a process ends in this method.
  before(ChildProcess.prototype, "spawn", ([options]) => {
    const file: unknown = typeof options === "object" && options !== null ? Reflect.get(options, "file") : options;
    refuse(`start ${String(file)}`);
  });
  for (const name of ["spawnSync", "execSync", "execFileSync"]) {
    before(childProcess, name, ([file]) => refuse(`start ${String(file)}`));
  }
  syncBuiltinESMExports();
  before(Socket.prototype, "connect", staysHere("connect to"));
  before(Server.prototype, "listen", staysHere("listen on"));
  before(UdpSocket.prototype, "bind", staysHere("bind to"));
  before(UdpSocket.prototype, "connect", staysHere("connect to"));
  before(UdpSocket.prototype, "send", staysHere("send to", receiverIn));
}
