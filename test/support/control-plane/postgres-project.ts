import type { TestProject } from "vitest/node";
import { connectPostgres } from "../../../src/controller/store/postgres.ts";
import { migrateShared } from "../../../src/controller/store/schema.ts";
import { startPostgres } from "./postgres.ts";

/** Server of a run's tests, and the database with the controller's tables that theirs are copied from. */
export interface SharedPostgres {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly template: string;
}

declare module "vitest" {
  interface ProvidedContext {
    /** Given to the tests that run on PostgreSQL. */
    readonly postgres?: SharedPostgres;
  }
}

/** Nothing is kept beyond the run, and a test's few rows need no statistics. */
const SETTINGS = ["autovacuum=off", "max_connections=200", "wal_level=minimal", "max_wal_senders=0", "jit=off"];

/** Starts the one PostgreSQL server of a run, whose tests each have a database of their own. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres({ settings: SETTINGS });
  const settings = await server.createDatabase();
  const template = connectPostgres(settings, { check: () => undefined });
  await migrateShared(template);
  await template.close();
  const { host, port, user, database } = settings.address;
  project.provide("postgres", { host, port, user, template: database });
  return () => server.remove();
}
