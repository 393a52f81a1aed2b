/** What the shared server's starter writes for the other test files and for the teardown. */

declare module "vitest" {
  interface ProvidedContext {
    sharedServerFolder: string;
  }
}

export interface SharedServer {
  /** `http://127.0.0.1:PORT` */
  readonly address: string;
  readonly model: string;
  readonly pid: number;
}

/** Name inside the folder; it appears whole or not at all. */
export const sharedServerFile = "server.json";
