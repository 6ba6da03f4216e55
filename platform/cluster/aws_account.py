"""What an AWS account lacks for a cluster file, and what the cluster will cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Dollars an hour on demand, Linux, in us-east-1 and us-west-2, as AWS listed them in 2025; other regions cost up to a third more.
_HOURLY = {
    "m6i.large": 0.096,
    "m6i.xlarge": 0.192,
    "m6i.2xlarge": 0.384,
    "g4dn.xlarge": 0.526,
    "g4dn.2xlarge": 0.752,
    "g4dn.12xlarge": 3.912,
    "g5.xlarge": 1.006,
    "g5.2xlarge": 1.212,
    "g5.4xlarge": 1.624,
    "g5.12xlarge": 5.672,
    "g5.48xlarge": 16.288,
    "g6.xlarge": 0.805,
    "g6.2xlarge": 0.978,
    "g6.4xlarge": 1.323,
    "g6.12xlarge": 4.602,
    "g6e.xlarge": 1.861,
    "g6e.2xlarge": 2.242,
    "g6e.4xlarge": 3.004,
}
_DISK = 0.08 / 730  # dollars for a GB of gp3 an hour
_ADDRESS = 0.005  # for a public address an hour
_SSH = 22


def bill(config: Mapping[str, Any]) -> list[str]:
    """List the nodes of a prepared file, one line per node type, and the total cost per hour."""
    lines: list[str] = []
    idle, most = 0.0, 0.0
    for name, about in config["available_node_types"].items():
        node, head = about["node_config"], name == config["head_node_type"]
        instance, spot = node["InstanceType"], "InstanceMarketOptions" in node
        disk = sum(device.get("Ebs", {}).get("VolumeSize", 0) for device in node.get("BlockDeviceMappings", ()))
        n = "1" if head else f"{about.get('min_workers', 0)} to {about['max_workers']}"
        price = _HOURLY.get(instance)
        each = None if price is None else price + disk * _DISK + _ADDRESS
        cost = "its price is not known here" if each is None else f"${each:.2f} an hour each{' at most' if spot else ''}"
        lines.append(f"{n} × {name}: {instance}{' spot' if spot else ''}, {disk} GB of disk, {cost}")
        idle += (each or 0) * (1 if head else about.get("min_workers", 0))
        most += (each or 0) * (1 if head else about["max_workers"])
    lines.append(
        f"together ${idle:.2f} an hour while no trial waits and at most ${most:.2f}: AWS's list of 2025 for us-west-2 on demand; "
        "spot instances cost some 30 to 70 % less, other regions up to a third more"
    )
    return lines


def risks(config: Mapping[str, Any]) -> list[str]:
    """List access and permissions that Ray adds to a prepared file beyond what is needed; a sentence each."""
    head, about = config["head_node_type"], config["available_node_types"]
    found = (
        []
        if _profile_name(about[head]["node_config"])
        else [f"{head} has no IamInstanceProfile: Ray makes one that may do anything with EC2 and S3."]
    )
    return found + [
        f"{name} has no SecurityGroupIds: Ray makes a group that lets ssh in from the whole world."
        for name, one in about.items()
        if not _group_ids(one["node_config"])
    ]


def lacking_in_account(config: Mapping[str, Any]) -> list[str]:
    """List what nodes of a prepared file need and the current AWS account lacks; one sentence each.

    What these credentials may not look at counts as there, and so does what Ray makes.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    provider = config["provider"]
    region = provider["region"]
    try:
        iam, ec2 = boto3.client("iam", region_name=region), boto3.client("ec2", region_name=region)
        found = list[str]()
        for name, about in config["available_node_types"].items():
            node = about["node_config"]
            profile = "" if name == config["head_node_type"] and not _profile_name(node) else _profile(iam, name, node)
            for one in (profile, _type(ec2, provider, node), *_groups(ec2, node)):
                if one and one not in found:
                    found.append(one)
    except (BotoCoreError, ClientError) as error:
        return [f"AWS cannot be asked: {str(error).rstrip('.')}."]
    return found


def _profile_name(node: Mapping[str, Any]) -> str:
    profile = node.get("IamInstanceProfile", {})
    return profile.get("Name") or profile.get("Arn", "").rpartition("/")[2]


def _profile(iam: Any, type_: str, node: Mapping[str, Any]) -> str:
    if not (name := _profile_name(node)):
        return f"{type_} has no IamInstanceProfile, without which its nodes cannot read a bucket."
    if _answer(iam.get_instance_profile, "NoSuchEntity", InstanceProfileName=name) == "NoSuchEntity":
        return f"The account has no instance profile {name!r}, which the stack of aws_account.yaml makes."
    return ""


def _type(ec2: Any, provider: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    instance, zones = node["InstanceType"], provider.get("availability_zone", "")
    filters = [{"Name": "instance-type", "Values": [instance]}]
    if zones:
        filters.append({"Name": "location", "Values": [zone.strip() for zone in zones.split(",")]})
    offered = _answer(ec2.describe_instance_type_offerings, LocationType="availability-zone", Filters=filters)
    if isinstance(offered, dict) and not offered["InstanceTypeOfferings"]:
        return f"{zones or provider['region']} offers no {instance}."
    return ""


def _group_ids(node: Mapping[str, Any]) -> list[str]:
    own = node.get("SecurityGroupIds", ())
    return list(
        dict.fromkeys([*own, *(one for interface in node.get("NetworkInterfaces", ()) for one in interface.get("Groups", ()))])
    )


def _groups(ec2: Any, node: Mapping[str, Any]) -> list[str]:
    if not (ids := _group_ids(node)):
        return []
    answer = _answer(ec2.describe_security_groups, "InvalidGroup.NotFound", GroupIds=ids)
    if answer == "InvalidGroup.NotFound":
        return [f"{' or '.join(ids)} is no security group of the account and its region."]
    groups = answer["SecurityGroups"] if isinstance(answer, dict) else []
    return [
        f"The security group {group['GroupId']} lets ssh in from the whole world; let it in from your address alone."
        for group in groups
        if any(_is_of_ssh(rule) and _everyone(rule) for rule in group["IpPermissions"])
    ]


def _is_of_ssh(rule: Mapping[str, Any]) -> bool:
    """Return True if a rule covers port 22, also in a range or all protocols."""
    return rule["IpProtocol"] == "-1" or (rule["IpProtocol"] in ("tcp", "6") and rule["FromPort"] <= _SSH <= rule["ToPort"])


def _everyone(rule: Mapping[str, Any]) -> bool:
    addresses = [one["CidrIp"] for one in rule.get("IpRanges", ())] + [one["CidrIpv6"] for one in rule.get("Ipv6Ranges", ())]
    return any(address in ("0.0.0.0/0", "::/0") for address in addresses)


def _answer(ask: Any, *known: str, **what: Any) -> Any:
    """Ask AWS; return the name of an error that is in `known`, and None if access is denied."""
    from botocore.exceptions import ClientError

    try:
        return ask(**what)
    except ClientError as error:
        code: str = error.response["Error"]["Code"]
        if code in known:
            return code
        if code in ("AccessDenied", "UnauthorizedOperation", "AccessDeniedException"):
            return None
        raise
