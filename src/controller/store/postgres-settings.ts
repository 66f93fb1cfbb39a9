import { isIP } from "node:net";
import type { ClientConfig } from "pg";
import { HostError, InputError, toError } from "../../errors.ts";
import { readRegularFileSync } from "../../host/files/regular-file.ts";
import { everyAuthority } from "../../host/net/authorities.ts";

/** Settings of a controller's connections to PostgreSQL. */
export interface PostgresSettings {
  /** Address as parsed by `parseStoreUrl`. */
  readonly address: PostgresAddress;
  /** Name of the option that gives the address, for messages; `store` when absent. */
  readonly option?: string | undefined;
  /** File with the password, read for every connection, so that it can be changed without a restart. */
  readonly passwordFile?: string | undefined;
  /** File with the certificates of the authorities that the server's certificate is checked against, in PEM. Without it, those of the system and of Node. */
  readonly caFile?: string | undefined;
  /** Time limits in milliseconds, of which tests give shorter ones. */
  readonly limits?: Partial<PostgresLimits> | undefined;
}

/** Address of a database. */
export interface PostgresAddress {
  /** Name, IP address, or directory of a Unix socket. */
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
  /** Whether the connection is encrypted and the server proves its name. */
  readonly isVerified: boolean;
}

/** Time limits of a connection, in milliseconds. */
export interface PostgresLimits {
  /** Limit of making a connection, and of waiting for a free one. */
  readonly connectMs: number;
  /** Limit of a statement, held by the server; none if 0. */
  readonly statementMs: number;
  /** Interval at which the connection of the lock is checked. */
  readonly lockCheckMs: number;
}

export const POSTGRES_LIMITS: PostgresLimits = { connectMs: 10_000, statementMs: 15_000, lockCheckMs: 5000 };

const FORM = "postgres://USER@HOST:PORT/DATABASE";

/**
 * Parses `postgres://USER@HOST:PORT/DATABASE`, with a directory of a Unix socket as HOST if its slashes are escaped (`%2F`). The
 * connection is encrypted and the server's certificate is checked, except on a Unix socket, on a loopback address, or with
 * `?sslmode=disable`; `?sslmode=verify-full` asks for it on a loopback address.
 * @param option name of the option that gives it, for messages
 * @throws {InputError} `invalid-settings`
 */
export function parseStoreUrl(text: string, option = "store"): PostgresAddress {
  const refused = (why: string): InputError => refusedBy(option, why);
  const url = URL.parse(text);
  if (url === null || !["postgres:", "postgresql:"].includes(url.protocol)) {
    throw refused("not the address of a PostgreSQL database");
  }
  if (url.password !== "") {
    throw refused(`a password in the address would show in the list of processes; give --${option}-password-file`);
  }
  const [host, user, database] = [url.hostname, url.username, url.pathname.slice(1)].map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      throw refused("it has a broken escape");
    }
  });
  if (!host || !user || !database || database.includes("/"))
    throw refused("it lacks the user, the host or the database");
  const modes = url.searchParams.getAll("sslmode");
  const unknown = [...url.searchParams.keys()].find((name) => name !== "sslmode");
  if (unknown !== undefined) throw refused(`the option '${unknown}' is not known; sslmode is the only one`);
  const [mode] = modes;
  if (modes.length > 1 || (mode !== undefined && mode !== "verify-full" && mode !== "disable")) {
    throw refused(
      "sslmode must be verify-full or disable; the other modes do not check the certificate and the name of the server",
    );
  }
  const isSocket = host.startsWith("/");
  if (isSocket && mode === "verify-full") throw refused("a Unix socket has no certificate; leave sslmode out");
  const isVerified = mode === undefined ? !isSocket && !isLoopback(host) : mode === "verify-full";
  // Node gives an IPv6 address in brackets.
  return { host: bare(host), port: url.port === "" ? 5432 : Number(url.port), user, database, isVerified };
}

const bare = (host: string): string => host.replace(/^\[(.*)\]$/, "$1");

function isLoopback(host: string): boolean {
  const address = bare(host);
  return address === "localhost" || address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}

const refusedBy = (option: string, why: string): InputError =>
  new InputError("invalid-settings", `--${option}: ${why} (${FORM})`, { details: { field: option } });

/** Returns the address in the form that messages name it by. */
export function addressText({ host, port, database }: PostgresAddress): string {
  return host.startsWith("/") ? `${database} at ${host} (port ${port})` : `${database} at ${host}:${port}`;
}

const MAX_FILE_BYTES = 1024 * 1024;

/** @throws {InputError} `invalid-settings` if the file of certificates cannot be read or is not used */
export function connectionOf({ address, option = "store", passwordFile, caFile }: PostgresSettings): ClientConfig {
  const { host, port, user, database, isVerified } = address;
  if (!isVerified && caFile !== undefined) {
    throw refusedBy(
      option,
      `--${option}-ca-file has no effect, because the certificate of this server is not checked; add ?sslmode=verify-full`,
    );
  }
  return {
    host,
    port,
    user,
    database,
    // Called only if the server asks for one. A function also keeps the driver from looking in the home directory.
    password: () => readPassword(passwordFile, option),
    ssl: isVerified
      ? { rejectUnauthorized: true, ca: caFile === undefined ? everyAuthority() : readAuthorities(caFile, option) }
      : false,
    application_name: "holdfast controller",
    client_encoding: "UTF8",
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  };
}

function readAuthorities(path: string, option: string): string {
  try {
    return readRegularFileSync(path, MAX_FILE_BYTES).toString("utf8");
  } catch (error) {
    throw new InputError("invalid-settings", `--${option}-ca-file: ${toError(error).message}`, {
      cause: error,
      details: { field: "storeCaFile" },
    });
  }
}

function readPassword(path: string | undefined, option: string): string {
  if (path === undefined) {
    throw new HostError(
      "store-unavailable",
      `the PostgreSQL server asks for a password; give --${option}-password-file`,
    );
  }
  try {
    return readRegularFileSync(path, MAX_FILE_BYTES)
      .toString("utf8")
      .replace(/\r?\n$/, "");
  } catch (error) {
    throw new HostError("store-unavailable", `--${option}-password-file: ${toError(error).message}`, { cause: error });
  }
}
