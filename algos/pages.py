"""Every algorithm of d3ray by its name: the table that imports, the registry and type checkers read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.lazy import lazily

if TYPE_CHECKING:
    from .actor_critic.cal_ql import CalQL as CalQL
    from .actor_critic.cql import CQL as CQL
    from .actor_critic.ddpg import DDPG as DDPG
    from .actor_critic.edac import EDAC as EDAC
    from .actor_critic.rebrac import ReBRAC as ReBRAC
    from .actor_critic.rlpd import RLPD as RLPD
    from .actor_critic.sac import SAC as SAC
    from .actor_critic.sac_n import SACN as SACN
    from .actor_critic.td3 import TD3 as TD3
    from .actor_critic.td3_plus_bc import TD3PlusBC as TD3PlusBC
    from .behaviour.bcq import BCQ as BCQ
    from .behaviour.bear import BEAR as BEAR
    from .behaviour.mcq import MCQ as MCQ
    from .behaviour.plas import PLAS as PLAS
    from .behaviour.plas_with_perturbation import PLASWithPerturbation as PLASWithPerturbation
    from .behaviour.spot import SPOT as SPOT
    from .constrained.bcq_lagrangian import BCQLagrangian as BCQLagrangian
    from .constrained.coptidice import COptiDICE as COptiDICE
    from .constrained.cpq import CPQ as CPQ
    from .generative.diffusion_ql import DiffusionQL as DiffusionQL
    from .generative.fbc import FBC as FBC
    from .generative.fql import FQL as FQL
    from .generative.idql import IDQL as IDQL
    from .generative.ifql import IFQL as IFQL
    from .generative.qc import QC as QC
    from .goal_conditioned.crl import CRL as CRL
    from .goal_conditioned.gcbc import GCBC as GCBC
    from .goal_conditioned.gciql import GCIQL as GCIQL
    from .goal_conditioned.gcivl import GCIVL as GCIVL
    from .goal_conditioned.hiql import HIQL as HIQL
    from .goal_conditioned.qrl import QRL as QRL
    from .goal_conditioned.sharsa import SHARSA as SHARSA
    from .imitation.awac import AWAC as AWAC
    from .imitation.awr import AWR as AWR
    from .imitation.bc import BC as BC
    from .imitation.crr import CRR as CRR
    from .imitation.discrete_awr import DiscreteAWR as DiscreteAWR
    from .imitation.discrete_bc import DiscreteBC as DiscreteBC
    from .imitation.discrete_crr import DiscreteCRR as DiscreteCRR
    from .in_sample.discrete_iql import DiscreteIQL as DiscreteIQL
    from .in_sample.iql import IQL as IQL
    from .in_sample.xql import XQL as XQL
    from .judging.discrete_fqe import DiscreteFQE as DiscreteFQE
    from .judging.fqe import FQE as FQE
    from .model_based.combo import COMBO as COMBO
    from .model_based.mbpo import MBPO as MBPO
    from .model_based.mobile import MOBILE as MOBILE
    from .model_based.mopo import MOPO as MOPO
    from .model_based.morel import MOReL as MOReL
    from .model_based.probabilistic_ensemble import ProbabilisticEnsemble as ProbabilisticEnsemble
    from .model_based.rambo import RAMBO as RAMBO
    from .on_policy.a2c import A2C as A2C
    from .on_policy.acer import ACER as ACER
    from .on_policy.ppo import PPO as PPO
    from .on_policy.reinforce import REINFORCE as REINFORCE
    from .on_policy.trpo import TRPO as TRPO
    from .sequence.decision_transformer import DecisionTransformer as DecisionTransformer
    from .sequence.discrete_decision_transformer import DiscreteDecisionTransformer as DiscreteDecisionTransformer
    from .values.al import AL as AL
    from .values.categorical_double_dqn import CategoricalDoubleDQN as CategoricalDoubleDQN
    from .values.categorical_dqn import CategoricalDQN as CategoricalDQN
    from .values.discrete_bcq import DiscreteBCQ as DiscreteBCQ
    from .values.discrete_cql import DiscreteCQL as DiscreteCQL
    from .values.discrete_sac import DiscreteSAC as DiscreteSAC
    from .values.double_dqn import DoubleDQN as DoubleDQN
    from .values.double_pal import DoublePAL as DoublePAL
    from .values.dpp import DPP as DPP
    from .values.dqn import DQN as DQN
    from .values.iqn import IQN as IQN
    from .values.naf import NAF as NAF
    from .values.nfq import NFQ as NFQ
    from .values.pal import PAL as PAL
    from .values.rainbow import Rainbow as Rainbow

_FAMILIES = {  # by folder the module and the class of each
    "actor_critic": "cal_ql.CalQL cql.CQL ddpg.DDPG edac.EDAC rebrac.ReBRAC rlpd.RLPD sac.SAC sac_n.SACN td3.TD3 "
    "td3_plus_bc.TD3PlusBC",
    "behaviour": "bcq.BCQ bear.BEAR mcq.MCQ plas.PLAS plas_with_perturbation.PLASWithPerturbation spot.SPOT",
    "constrained": "bcq_lagrangian.BCQLagrangian coptidice.COptiDICE cpq.CPQ",
    "generative": "diffusion_ql.DiffusionQL fbc.FBC fql.FQL idql.IDQL ifql.IFQL qc.QC",
    "goal_conditioned": "crl.CRL gcbc.GCBC gciql.GCIQL gcivl.GCIVL hiql.HIQL qrl.QRL sharsa.SHARSA",
    "imitation": "awac.AWAC awr.AWR bc.BC crr.CRR discrete_awr.DiscreteAWR discrete_bc.DiscreteBC discrete_crr.DiscreteCRR",
    "in_sample": "discrete_iql.DiscreteIQL iql.IQL xql.XQL",
    "judging": "discrete_fqe.DiscreteFQE fqe.FQE",
    "model_based": "combo.COMBO mbpo.MBPO mobile.MOBILE mopo.MOPO morel.MOReL rambo.RAMBO "
    "probabilistic_ensemble.ProbabilisticEnsemble",
    "on_policy": "a2c.A2C acer.ACER ppo.PPO reinforce.REINFORCE trpo.TRPO",
    "sequence": "decision_transformer.DecisionTransformer discrete_decision_transformer.DiscreteDecisionTransformer",
    "values": "al.AL categorical_double_dqn.CategoricalDoubleDQN categorical_dqn.CategoricalDQN discrete_bcq.DiscreteBCQ "
    "discrete_cql.DiscreteCQL discrete_sac.DiscreteSAC double_dqn.DoubleDQN double_pal.DoublePAL dpp.DPP dqn.DQN iqn.IQN "
    "naf.NAF nfq.NFQ pal.PAL rainbow.Rainbow",
}
PAGES = {
    name: f".{folder}.{module}"
    for folder, pages in _FAMILIES.items()
    for module, name in (page.split(".") for page in pages.split())
}
__getattr__, __all__ = lazily(f"{__package__}", PAGES)  # pyright: ignore[reportUnsupportedDunderAll]
