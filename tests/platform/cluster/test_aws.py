"""The files for AWS, played against an account in memory: the stack is made, and Ray's own code launches a head and a worker."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sysconfig
from collections.abc import Generator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import boto3
import pytest
import yaml
from moto import mock_aws
from ray.autoscaler._private.aws.config import bootstrap_aws
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler._private.aws.utils import client_cache, resource_cache

from d3ray.jobs.command.running import run_command
from d3ray.platform.cluster.aws_account import lacking_in_account, risks
from d3ray.platform.cluster.description import MACHINE_IMAGE, Description
from d3ray.platform.cluster.launcher import ClusterFile

pytestmark = pytest.mark.long

REGION = "us-west-2"
BUCKET = "lab-data"
BIN = Path(sysconfig.get_path("scripts"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A home folder with credentials for an account in memory, and with the token of a cluster."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".ray").mkdir()
    (folder / ".ray/auth_token").touch()
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": REGION}.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def account(home: Path) -> dict[str, str]:
    """The outputs of the stack of aws_account.yaml, which has been made."""
    stacks = boto3.client("cloudformation")
    vpc = boto3.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
    parameters = {"Bucket": BUCKET, "Vpc": vpc, "SshFrom": "203.0.113.7/32"}
    stacks.create_stack(
        StackName="d3ray",
        TemplateBody=Description().files_for("aws")["aws_account.yaml"],
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    (stack,) = stacks.describe_stacks(StackName="d3ray")["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@pytest.fixture(scope="module")
def file(account: dict[str, str], home: Path) -> ClusterFile:
    """The cluster file, filled in as its first lines say."""
    about = {"image": account["Image"], "aws": {"security_group": account["SecurityGroup"]}, "storage": f"s3://{BUCKET}/d3ray"}
    path = home / "ray_cluster.yaml"
    path.write_text(Description.checked(about).files_for("aws")["ray_cluster.yaml"])
    return ClusterFile.read(path)


@pytest.fixture(scope="module")
def launched(file: ClusterFile) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """By node type what Ray's own code asks EC2 for, and the instance that it gets."""
    asked: list[Mapping[str, Any]] = []
    images = boto3.client("ec2").describe_images(Owners=["amazon"])["Images"]

    def look_up(params: dict[str, Any], **_: Any) -> None:  # as EC2 does with an image that is named by a parameter
        asked.append(dict(params))
        assert params["ImageId"] == f"resolve:ssm:{MACHINE_IMAGE}"
        params["ImageId"] = images[0]["ImageId"]

    for cached in (client_cache, resource_cache):  # Ray keeps them, of another test's account too
        cached.cache_clear()
    made = bootstrap_aws(AWSNodeProvider.fillout_available_node_types_resources(file.prepared))
    provider = AWSNodeProvider(made["provider"], made["cluster_name"])
    provider.ec2_fail_fast.meta.client.meta.events.register("provide-client-params.ec2.RunInstances", look_up)
    found: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    for name, about in made["available_node_types"].items():
        node = {**about["node_config"], **(made["head_node"] if name == "head" else {})}
        (id,) = provider.create_node(node, {"ray-user-node-type": name}, 1)
        (instance,) = boto3.client("ec2").describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"]
        found[name] = asked.pop(), instance
    assert made["available_node_types"]["gpu_worker"]["resources"] == {
        "CPU": 8,
        "GPU": 1,
        "accelerator_type:A10G": 1,
        "memory": ANY,
    }
    return found


def rights(role: str) -> list[tuple[str, str]]:
    """What a role may do, as pairs of patterns: an action, and what with."""
    iam = boto3.client("iam")
    found: list[tuple[str, str]] = []
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        about = iam.get_policy(PolicyArn=policy["PolicyArn"])["Policy"]
        document = iam.get_policy_version(PolicyArn=about["Arn"], VersionId=about["DefaultVersionId"])["PolicyVersion"]["Document"]
        for statement in (document if isinstance(document, dict) else json.loads(document))["Statement"]:
            assert statement["Effect"] == "Allow"
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            found += [(action, statement["Resource"]) for action in actions]
    return found


def may(role: str, action: str, resource: str) -> bool:
    return any(fnmatch.fnmatchcase(action, does) and fnmatch.fnmatchcase(resource, to) for does, to in rights(role))


def test_ray_launches_head_and_workers_with_role_group_and_encrypted_disk(
    account: dict[str, str], launched: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    iam = boto3.client("iam")
    for name, (asked, instance) in launched.items():
        profile = "d3ray-head" if name == "head" else "d3ray-worker"
        assert (
            instance["IamInstanceProfile"]["Arn"] == iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Arn"]
        )
        assert [group["GroupId"] for group in instance["SecurityGroups"]] == [account["SecurityGroup"]]
        assert asked["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        volumes = [device["Ebs"]["VolumeId"] for device in instance["BlockDeviceMappings"]]
        assert volumes
        assert all(volume["Encrypted"] for volume in boto3.client("ec2").describe_volumes(VolumeIds=volumes)["Volumes"])
        assert asked.get("InstanceMarketOptions") == (None if name == "head" else {"MarketType": "spot"})
    assert {role["RoleName"] for role in iam.list_roles()["Roles"]} == {"d3ray-head", "d3ray-worker"}  # none of Ray's own


@pytest.mark.usefixtures("launched")
def test_ssh_comes_from_one_place_and_nothing_else_from_outside(account: dict[str, str]) -> None:
    groups = boto3.client("ec2").describe_security_groups()["SecurityGroups"]
    assert not [group["GroupName"] for group in groups if group["GroupName"].startswith("ray-autoscaler")]
    (ours,) = (group for group in groups if group["GroupId"] == account["SecurityGroup"])
    from_outside = [(rule["FromPort"], rule["ToPort"], one["CidrIp"]) for rule in ours["IpPermissions"] for one in rule["IpRanges"]]
    assert from_outside == [(22, 22, "203.0.113.7/32")]
    assert [pair["GroupId"] for rule in ours["IpPermissions"] for pair in rule["UserIdGroupPairs"]] == [account["SecurityGroup"]]


@pytest.mark.usefixtures("account")
def test_the_head_may_start_workers_and_workers_only_use_the_bucket() -> None:
    worker = boto3.client("iam").get_role(RoleName="d3ray-worker")["Role"]["Arn"]
    for role in ("d3ray-head", "d3ray-worker"):
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
            assert may(role, action, f"arn:aws:s3:::{BUCKET}/d3ray/x")
            assert not may(role, action, "arn:aws:s3:::another/d3ray/x")
        assert may(role, "s3:ListBucket", f"arn:aws:s3:::{BUCKET}")
        assert may(role, "ecr:GetAuthorizationToken", "*")
    cluster = {
        "ec2:RunInstances": "arn:aws:ec2:us-west-2:123456789012:instance/*",
        "ec2:DescribeInstances": "*",
        "ec2:TerminateInstances": "arn:aws:ec2:us-west-2:123456789012:instance/i-1",
        "ec2:CreateTags": "arn:aws:ec2:us-west-2:123456789012:instance/i-1",
        "ssm:GetParameters": f"arn:aws:ssm:{REGION}::parameter{MACHINE_IMAGE}",
        "iam:PassRole": worker,
    }
    for action, resource in cluster.items():
        assert may("d3ray-head", action, resource), action
        assert not may("d3ray-worker", action, resource), action
    assert not may("d3ray-head", "iam:PassRole", worker.replace("worker", "head"))
    assert not may("d3ray-head", "iam:AttachRolePolicy", "*")


def test_aws_accepts_the_stack(tmp_path: Path) -> None:
    (tmp_path / "aws_account.yaml").write_text(Description().files_for("aws")["aws_account.yaml"])
    done = subprocess.run([BIN / "cfn-lint", tmp_path / "aws_account.yaml"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_dry_run_says_what_is_made_and_what_it_costs(file: ClusterFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("up", [str(file.path), "--dry-run"]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[:3] == [
        "1 × head: m6i.xlarge, 140 GB of disk, $0.21 an hour each",
        "0 to 4 × gpu_worker: g5.2xlarge spot, 200 GB of disk, $1.24 an hour each at most",
        "together $0.21 an hour while no trial waits and at most $5.17: AWS's list of 2025 for us-west-2 on demand; "
        "spot instances cost some 30 to 70 % less, other regions up to a third more",
    ]
    assert "is ready to be used" in said.out


def group_open_to_the_world(port: int) -> str:
    """The id of a security group."""
    ec2 = boto3.client("ec2")
    group = ec2.create_security_group(GroupName=f"open-{port}", Description="to the world")["GroupId"]
    everyone = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[everyone])
    return group


def test_an_account_that_is_not_ready_is_refused(file: ClusterFile, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_group = group_open_to_the_world(22)
    spoiled = deepcopy(file.config)
    head, worker = (spoiled["available_node_types"][name]["node_config"] for name in ("head", "gpu_worker"))
    head |= {"IamInstanceProfile": {"Name": "nobody"}, "SecurityGroupIds": [open_group]}
    worker |= {"InstanceType": "p9.large", "SecurityGroupIds": ["sg-0123456789abcdef0"]}
    del worker["IamInstanceProfile"]
    (home / "spoiled.yaml").write_text(yaml.safe_dump(spoiled, sort_keys=False))
    assert lacking_in_account(ClusterFile.read(home / "spoiled.yaml").prepared) == [
        "The account has no instance profile 'nobody', which the stack of aws_account.yaml makes.",
        f"The security group {open_group} lets ssh in from the whole world; let it in from your address alone.",
        "gpu_worker has no IamInstanceProfile, without which its nodes cannot read a bucket.",
        "us-west-2a,us-west-2b offers no p9.large.",
        "sg-0123456789abcdef0 is no security group of the account and its region.",
    ]
    assert run_command("up", [str(home / "spoiled.yaml"), "--yes"]) == 2
    assert "cannot be used yet. The account has no instance profile 'nobody'" in capsys.readouterr().err


def test_what_ray_makes_itself_is_no_reason_to_refuse(
    account: dict[str, str], file: ClusterFile, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    web = group_open_to_the_world(443)
    bare = deepcopy(file.config)
    head, worker = (bare["available_node_types"][name]["node_config"] for name in ("head", "gpu_worker"))
    del head["IamInstanceProfile"], head["SecurityGroupIds"], worker["SecurityGroupIds"]
    worker["NetworkInterfaces"] = [{"DeviceIndex": 0, "SubnetId": "subnet-1", "Groups": [account["SecurityGroup"], web]}]
    (home / "bare.yaml").write_text(yaml.safe_dump(bare, sort_keys=False))
    prepared = ClusterFile.read(home / "bare.yaml").prepared
    assert lacking_in_account(prepared) == []
    said = [
        "head has no IamInstanceProfile: Ray makes one that may do anything with EC2 and S3.",
        "head has no SecurityGroupIds: Ray makes a group that lets ssh in from the whole world.",
    ]
    assert risks(prepared) == said
    assert risks(file.prepared) == []
    assert run_command("up", [str(home / "bare.yaml"), "--dry-run"]) == 0
    assert capsys.readouterr().err.splitlines()[-2:] == said
    everything = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    boto3.client("ec2").authorize_security_group_ingress(GroupId=web, IpPermissions=everything)
    assert lacking_in_account(prepared) == [
        f"The security group {web} lets ssh in from the whole world; let it in from your address alone."
    ]


def test_the_file_as_it_is_written_has_to_be_filled_in(file: ClusterFile, home: Path) -> None:
    (home / "fresh.yaml").write_text(Description().files_for("aws")["ray_cluster.yaml"])
    places = [sentence.split(" ")[0] for sentence in ClusterFile.read(home / "fresh.yaml").lacking()]
    assert places == [
        "docker.image",
        "available_node_types.head.node_config.SecurityGroupIds",
        "available_node_types.gpu_worker.node_config.SecurityGroupIds",
    ]
    assert file.lacking() == []
